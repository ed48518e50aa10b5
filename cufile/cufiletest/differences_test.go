package cufiletest_test

import "github.com/culvert-io/culvert/cufile/cufiletest"

const (
	noUdev    = "registration needs no udev database, and works on every file system that can pread"
	harmless  = "the flag changes nothing for reads and writes at an offset"
	checked   = "the range is checked before anything is copied, and the code says what is wrong"
	behind    = "what lies behind the end of the file stays as it was; NVIDIA's library copies its whole staging buffer"
	unaligned = "O_DIRECT asks for alignment of the file system, not of the caller; NVIDIA's library passes host memory on as it is"
)

// differences from NVIDIA's library 1.15 are meant.
var differences = []cufiletest.Difference{
	{"file/path-only/*", "*: error 5022", "*", "a descriptor that cannot be read is refused at once"},
	{"file/nonblock/*", "register: ok", "register: error 5019", harmless},
	{"file/nofollow/*", "register: ok", "register: error 5019", harmless},
	{"file/*/shm", "register: ok", "register: error 5027", noUdev},
	{"sequence/*/shm/*/*", "register: ok", "register: error 5027", noUdev},
	{"hole/*/shm/*", "register: ok", "register: error 5027", noUdev},
	{"read/*/*/shm/*/*/*/*/*", "register: ok", "register: error 5027", noUdev},
	{"write/*/*/shm/*/*/*/*/*", "register: ok", "register: error 5027", noUdev},

	{"check/*/null/*", "*: error 5022", "*: error 22", "Go's errors carry cuFile's code; the C library answers EINVAL"},
	{"check/*/overflow/*", "*: error 5022", "*: error [15]", checked},
	{"check/*/negative-buffer-offset/*", "*: error 5014", "*: error [15]", checked},
	{"check/*/page-before-buffer/*", "*: error 5014", "*: error [15]", checked},
	{"check/*/past-allocation/*", "*: error 5014", "*: error [15]", checked},
	{"check/*/registered-negative/*", "*: error 5017", "*: error 5030", checked},
	{"check/read/wild/*", "read: error 5044", "read: error 1", "the message says EFAULT; errno 1 says nothing"},
	{"check/*/freed/*", "*: error 5012", "*: error 5022", "the code says that the pointer is bad, the message that the memory was freed"},
	{"check/write/size-0/pinned", "write: 0 bytes", "write: error 22", "a write of nothing is no error, whatever the memory; seen once in two recordings"},
	{"buffer/made-up/plain", "register-buffer: error 5022", "register-buffer: ok", "memory that does not exist is not registered"},
	{"check/write/read-only/*", "write: error 5019", "write: error 5", "the mirror of reading a write-only file, which NVIDIA's library answers with 5019"},

	{"read/*/*/disk/*/*/*/*/across", "read: * bytes", "read: * bytes, the memory differs at *", behind},
	{"sequence/*/disk/*/*", "read: * bytes", "read: * bytes, the memory differs at *", behind},
	{"hole/*/disk/*", "read: * bytes", "read: * bytes, the memory differs at *", behind},
	{"sequence/*/disk/rw-direct/pinned", "*: * bytes", "*: error [15]", unaligned},
}
