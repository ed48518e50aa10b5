package differential

// Why our answers differ from those of NVIDIA's release 1.15.
const (
	harmless  = "the flag changes nothing for reads and writes at an offset, so the file is accepted"
	unread    = "a descriptor that cannot be read is refused when it is registered, not at the first read"
	before    = "EIO, as for every copy to an address outside; NVIDIA's 5030 is \"internal error\""
	permitted = "EIO or the code that names the mistake; NVIDIA's library answers errno 1, \"operation not permitted\", for what it could not copy"
	overflow  = "a range that leaves the file's address space is 5022, refused before anything is tried; NVIDIA's library gets as far as a failing copy"
	readOnly  = "5019 says that the file is not open for writing, as both libraries say of reading a write-only file"
	freed     = "5012 says that the pointer is bad, CULVERT_LOG=errors that the memory was freed"
	nothing   = "a write of nothing is no error, whatever the memory"
	unaligned = "O_DIRECT asks for alignment of the file system, not of the caller; NVIDIA's library passes host memory on as it is and fails"
	nowhere   = "EFAULT says that the pointer leads nowhere"
)

// Reasons are all differences that are meant.
var Reasons = []Reason{
	{"file/path-only/*", "*", "error 5022", "*", unread},
	{"file/nonblock/*", "cuFileHandleRegister", "ok", "error 5019", harmless},
	{"file/nofollow/*", "cuFileHandleRegister", "ok", "error 5019", harmless},

	{"check/*/registered-negative/*", "*", "error 5", "error 5030", before},
	{"check/*/overflow/*", "*", "error 5022", "error [15]", overflow},
	{"check/*/negative-buffer-offset/*", "*", "error 5", "error 1", permitted},
	{"check/*/page-before-buffer/*", "*", "error 5", "error 1", permitted},
	{"check/*/past-allocation/*", "*", "error 5", "error 1", permitted},
	{"check/read/wild/*", "*", "error 14", "error 1", nowhere},
	{"check/*/freed/*", "*", "error 5012", "error 5022", freed},
	{"check/write/size-0/*", "*", "0 bytes", "error 22", nothing},
	{"check/write/read-only/*", "*", "error 5019", "error 5", readOnly},

	{"sequence/*/*/rw-direct/pinned", "*", "* bytes", "error [15]", unaligned},
	{"read/pinned/*-direct/*/*/*/*/*/*", "cuFileRead", "* bytes", "error 1", unaligned},
}

// OnHardware are the differences between the software machine and an H200.
var OnHardware = []Reason{
	{"calls/*", "cuFileDriverGetProperties", "* status 0x10 *", "* status 0 *", "the software machine has nvidia-fs, and so reaches NVMe directly"},
}
