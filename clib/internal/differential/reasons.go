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

	follows = "follows from the difference before it in the case"

	undefined = "flags and operations that mean nothing are refused, and nothing is moved"
	survives  = "NVIDIA's library dies"
	routing   = "dynamic routing is not claimed: there is none"
	asSet     = "what was set is what is reported, also of what was set before the driver is opened; NVIDIA's properties stay as they were"
	asWillBe  = "before the driver is opened a parameter has the value that it will have; NVIDIA's library says 0, or nothing"
	zero      = "a limit of nothing at all is refused, as other limits that are too small"
	calls     = "one read is counted as one"
	leftAlone = "a call that is refused leaves the result alone"
	anyOffset = "stream I/O has no alignment of its own"
	sameCode  = "the code that a read at a negative offset has everywhere"
	cutOff    = "a string that does not fit is an error, and is not cut off"
	logDir    = "a parameter that has no value yet has an empty one"
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

	{"calls/batch-bad", "cuFileBatchIOSubmit", "* = 5040", "* = 0", undefined},
	{"calls/batch-null", "cuFileBatchIOSetUp", "NULL = 5022", "died*", survives},
	{"calls/*", "cuFileDriverGetProperties", "* features 0xe", "* features 0xf", routing},
	{"calls/*", "cuFileDriverGetProperties", "* per buffer 1024", "* per buffer 0", asSet},
	{"calls/properties", "cuFileDriverGetProperties", "set *", "set *", asSet},
	{"calls/properties", "cuFileDriverSetMaxPinnedMemSize", "0 = 5003", "0 = 0", zero},
	{"calls/set-then-open", "cuFileDriverGetProperties", "opened *", "opened *", asSet},
	{"calls/set-then-open", "cuFileGetParameterSizeT", "batch after close is 32", "batch after close is 128", asSet},
	{"calls/sizes-closed", "cuFileGetParameterSizeT", "closed *", "closed * value 0", asWillBe},
	{"calls/strings", "cuFileGetParameterString", "closed 0 = 0 value ERROR", "closed 0 = 0 value *", asWillBe},
	{"calls/strings", "cuFileGetParameterString", "* 1 = 0 value -", "* 1 = 5022 value -", logDir},
	{"calls/strings", "cuFileGetParameterString", "2 bytes = 5022", "2 bytes = 0", cutOff},
	{"calls/slabs", "cuFileGetParameterPosixPoolSlabArray", "closed 3 = 0", "closed 3 = 5022", asWillBe},
	{"calls/statistics", "cuFileGetStatsL1", "reads 1 *", "reads 2 *", calls},
	{"calls/stream-bad", "cuFileReadAsync", "done -77", "done -22", leftAlone},
	{"calls/stream-reads", "cuFileReadAsync", "unaligned * done 5000", "unaligned * done -5", anyOffset},
	{"calls/stream-reads", "cuFileReadAsync", "bytes 7 1 7 1", "bytes 7 1 1 1", anyOffset},
	{"calls/stream-reads", "cuFileReadAsync", "negative offset * done -5022", "negative offset * done -1", sameCode},
	{"calls/stream-register", "cuFileStreamRegister", "flags 16 = 5022", "flags 16 = 0", undefined},
	{"calls/stream-register", "cuFileStreamRegister", "flags 0 = 0", "flags 0 = 5022", follows},
}

// OnHardware are the differences between the software machine and an H200.
var OnHardware = []Reason{
	{"calls/*", "cuFileDriverGetProperties", "* status 0x10 *", "* status 0 *", "the software machine has nvidia-fs, and so reaches NVMe directly"},
}
