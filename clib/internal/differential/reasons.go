package differential

// Why our answers differ from those of NVIDIA's releases 1.15 and 1.19.
const (
	harmless  = "the flag has no effect on reads and writes at an offset, so the file is accepted"
	unread    = "an unreadable descriptor is rejected when it is registered, not at the first read"
	before    = "EIO, as for every address outside of the allocation; NVIDIA's 5030 is \"internal error\""
	permitted = "EIO or the code of the mistake; NVIDIA's library returns errno 1, \"operation not permitted\", if a copy fails"
	overflow  = "a range beyond the largest file offset is rejected with 5022 before any transfer; NVIDIA's library tries the copy"
	readOnly  = "5019 means that the file is not open for writing, as both libraries return for reads of a write-only file"
	freed     = "5012 means an invalid pointer; CULVERT_LOG=errors tells that the memory was freed"
	nothing   = "a write of 0 bytes is no error, for any memory"
	unaligned = "O_DIRECT needs no alignment from the caller; NVIDIA's library passes host memory on unaligned and fails"
	nowhere   = "EFAULT means a wild pointer"
	madeUp    = "memory that does not exist is not registered"

	follows = "follows from the difference before it in the case"

	undefined = "undefined operations and targets are rejected, and nothing is moved"
	survives  = "NVIDIA's library crashes"
	routing   = "dynamic routing is not supported and not reported"
	asSet     = "the value that was set is reported, also if it was set before the driver was opened; NVIDIA's properties do not change"
	asWillBe  = "before the driver is opened a parameter has its later value; NVIDIA's library reports 0 or nothing"
	calls     = "one read is counted once"
	leftAlone = "a rejected call does not change the result"
	anyOffset = "stream I/O needs no alignment"
	sameCode  = "the same code as for any read at a negative offset"
	cutOff    = "a string that does not fit is an error and is not truncated"
	later     = "the call returns at once; NVIDIA's library waits for the stream inside of it, and for ever if the program continues the stream afterwards"
	chained   = "events order reads of several streams; with NVIDIA's library one of eight is done when the last stream is"
	called    = "the functions of a user-space file system are called; NVIDIA's library calls none without its RDMA"
	known     = "parameters of newer releases are known"
	older     = "the code of release 1.15, which the library reports as its version"
	newer     = "the code of release 1.19, which says more than the one of 1.15"
	room      = "more entries than there is room for are 5037, as in a batch that is full"
	waits     = "without a timeout the call waits for the minimum of events"
	opens     = "without staged routes the driver opens and transfers that need one are refused; NVIDIA's driver does not open"
	builtIn   = "a closed driver reports the built-in value of release 1.15, whatever was set before"
	onDemand  = "memory is registered for RDMA on demand, so the flags are accepted for host memory, too"
	mapping   = "5017, as for cuFileRead beyond a registered buffer, and in the result, because other arguments count at execution"
	peeks     = "asking for the size of BAR1 does not open the driver"
	manyParts = "as many buffers as readv of the operating system takes"
	sameCodes = "the code that cuFileRead returns"
	stale     = "a handle that is no longer registered is rejected by the call"
)

// Reasons are all intended differences.
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
	{"buffer/made-up/plain", "*", "error 502[24]", "ok", madeUp},

	{"sequence/*/*/rw-direct/pinned", "*", "* bytes", "error [15]", unaligned},
	{"read/pinned/*-direct/*/*/*/*/*/*", "cuFileRead", "* bytes", "error 1", unaligned},

	{"calls/batch-bad", "cuFileBatchIOSubmit", "* = 5040", "* = 0", undefined},
	{"calls/batch-null", "cuFileBatchIOSetUp", "NULL = 5022", "died*", survives},
	{"calls/*", "cuFileDriverGetProperties", "* features 0xe", "* features 0xf", routing},
	{"calls/*", "cuFileDriverGetProperties", "* per buffer 1024", "* per buffer 0", asSet},
	{"calls/properties", "cuFileDriverGetProperties", "set *", "set *", asSet},
	{"calls/set-then-open", "cuFileDriverGetProperties", "opened *", "opened *", asSet},
	{"calls/set-then-open", "cuFileGetParameterSizeT", "batch after close is 32", "batch after close is 128", asSet},
	{"calls/sizes-closed", "cuFileGetParameterSizeT", "closed *", "closed * value 0", asWillBe},
	{"calls/strings", "cuFileGetParameterString", "closed 0 = 0 value ERROR", "closed 0 = 0 value *", asWillBe},
	{"calls/strings", "cuFileGetParameterString", "2 bytes = 5022", "2 bytes = 0", cutOff},
	{"calls/slabs", "cuFileGetParameterPosixPoolSlabArray", "closed 3 = 0", "closed 3 = 5022", asWillBe},
	{"calls/statistics", "cuFileGetStatsL1", "reads 1 *", "reads 2 *", calls},
	{"calls/stream-bad", "cuFileReadAsync", "done -77", "done -22", leftAlone},
	{"calls/stream-reads", "cuFileReadAsync", "unaligned * done 5000", "unaligned * done -5", anyOffset},
	{"calls/stream-reads", "cuFileReadAsync", "bytes 7 1 7 1", "bytes 7 1 1 1", anyOffset},
	{"calls/stream-reads", "cuFileReadAsync", "negative offset * done -5022", "negative offset * done -1", sameCode},

	{"calls/bar-sizes", "cuFileUseCount", "0", "1", peeks},
	{"calls/batch-rounds", "cuFileBatchIOGetStatus", "all without a timeout = 0: 4 events", "* 0 events", waits},
	{"calls/batch-bad", "cuFileBatchIOSubmit", "more than there is room = 5037", "more than there is room = 5040", room},
	{"calls/batch-bad", "cuFileBatchIOSubmit", "NULL memory = 5040", "NULL memory = 5037", follows},
	{"calls/batch-*", "cuFileBatchIO*", "* = 50[234]7*", "* = 504[01]*", newer},
	{"calls/batch-bad", "cuFileBatchIOSubmit", "* = 5022", "* = 5040", newer},
	{"calls/batch-unknown", "cuFileBatchIOCancel", "destroyed = 5047", "destroyed = 0", newer},
	{"calls/bools", "cuFileGetParameterBool", "* 12 = 0 *", "* 12 = 5022 *", known},
	{"calls/bools", "cuFileGetParameterBool", "closed 4 = 0 value 0", "closed 4 = 0 value 1", builtIn},
	{"calls/bools", "cuFileGetParameterBool", "* 5 = 0 *", "* 5 = 5022 *", older},
	{"calls/bools-off", "cuFileSetParameterBool", "1[23] to 1 = 0 *", "1[23] to 1 = 5022 *", known},
	{"calls/bools-off", "cuFileSetParameterBool", "1 to 0 = 0 *", "1 to 0 = 0 * open 5001: 0", opens},
	{"calls/bools-on", "cuFileSetParameterBool", "5 to 1 = 0 *", "5 to 1 = 0 * open 0: 0", asSet},
	{"calls/setting", "cuFileSetParameterBool", "12 to true = 0 *", "12 to true = 5022 *", known},
	{"calls/strings*", "cuFileGetParameterString", "* = 0*", "* = 5022*", known},
	{"calls/file-system", "*", "*", "*", called},
	{"calls/handles", "cuFileBuf*", "*0", "*50[24][45]", onDemand},
	{"calls/*sizes-set", "cuFileSetParameterSizeT", "2 to 33 * open 0: 4 *", "2 to 33 * open 0: 33 *", older},
	{"calls/*sizes-set", "cuFileSetParameterSizeT", "* closed again: 0", "* closed again: *", builtIn},
	{"calls/sizes-closed", "cuFileGetParameterSizeT", "closed [24] = 0 value 0", "closed [24] = 0 value [48]", builtIn},
	{"calls/ranges", "cuFileGetParameterMinMaxValue", "2 = 0 from 0 to 32", "2 = 0 from 0 to 128", older},
	{"calls/properties", "cuFileDriverSet*", "* = 5003", "* = 5022", older},
	{"calls/p2p-?et", "cuFileDriver?etP2PFlags", "target -1*", "target -1*", undefined},
	{"calls/readv*", "cuFileReadv", "*handle = -1 errno *", "*handle = -1 errno 5", sameCodes},
	{"calls/writev", "cuFileWritev", "*handle = -1 errno *", "*handle = -1 errno 5", sameCodes},
	{"calls/readv-bad", "cuFileReadv", "1024 = 1024", "1024 = -1 errno 22", manyParts},
	{"calls/readv-bad", "cuFileReadv", "NULL memory = 4096", "died*", survives},
	{"calls/stream-chain", "cuFileReadAsync", "chain: 0 then 8 good", "chain: 0 then ? good", chained},
	{"calls/stream-errors", "cuFileReadAsync", "past the memory = 0", "past the memory = 5016", mapping},
	{"calls/stream-errors", "cuFileReadAsync", "then 0 done -5017 *", "then 0 done -5016 *", mapping},
	{"calls/stream-errors", "cuFileReadAsync", "deregistered = 5027", "deregistered = 0", stale},
	{"calls/stream-later", "cuFileReadAsync", "*", "died*", later},
}

// Since are what has changed since our answers were recorded on an H200 (build 0856a4e).
var Since = []Reason{
	{"calls/batch-*", "cuFileBatchIO*", "* = 50[0-9][0-9]*", "* = 504[01]*", newer},
	{"calls/batch-unknown", "cuFileBatchIOCancel", "destroyed = 5047", "destroyed = 0", newer},
	{"calls/batch-bad", "cuFileBatchIOSubmit", "flags = 0", "flags = 5040", ignored},
	{"calls/stream-register", "cuFileStreamRegister", "flags 16 = 0", "flags 16 = 5022", ignored},
	{"calls/stream-register", "cuFileStreamRegister", "flags 0 = 5022", "flags 0 = 0", follows},
	{"calls/*v*", "cuFile*v", "flags * = 8192", "flags * = -1 errno 22", ignored},
	{"calls/properties", "cuFileDriverSetMaxPinnedMemSize", "0 = 0", "0 = 5003", noPins},
	{"calls/properties", "cuFileDriverGetProperties", "set cache 0 pinned 0", "set cache 0 pinned 1048576", noPins},
	{"calls/strings", "cuFileGetParameterString", "* 1 = 5022 value -", "* 1 = 0 value -", logFile},
}

const (
	ignored = "reserved flags are ignored, as by NVIDIA's library"
	noPins  = "a cap of 0 pins no memory, as with NVIDIA's library"
	logFile = "without a log file there is no name of one, as with NVIDIA's library"
)

const nvidiaFS = "the software machine has nvidia-fs and so reaches NVMe directly"

// OnHardware are the differences between a software machine with nvidia-fs and an H200
// without.
var OnHardware = []Reason{
	{"calls/*", "cuFileDriverGetProperties", "* status 0x10 *", "* status 0 *", nvidiaFS},
	{"calls/p2p-*", "cuFileDriverGetP2PFlags", "*: 2", "*: 0", nvidiaFS},
	{"calls/p2p-*", "cuFileDriverGetP2PFlags", "*: 3", "*: 1", nvidiaFS},
	{"calls/p2p-*", "cuFileDriverSetP2PFlags", "* then 3", "* then 1", nvidiaFS},
}
