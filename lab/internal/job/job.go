// Package job is the contract between the host and the guest's init: what to
// set up, what to run, and how the outcome comes back.
package job

// Path is where init finds its job, as JSON.
const Path = "/lab/job.json"

// Names of the virtio serial ports that carry the command's output and the
// requests that a test makes of the host.
const (
	PortStdout  = "lab.stdout"
	PortStderr  = "lab.stderr"
	PortControl = "lab.control"
)

// BootEnv is the environment variable that holds the number of the boot,
// counted from 1: it tells a test that it is in a guest, and how often the
// power was cut before.
const BootEnv = "CULVERT_LAB_BOOT"

// MountRoot is the directory below which each formatted drive is mounted, by
// its id.
const MountRoot = "/mnt"

// A Job is all that init does between the start of the kernel and its end.
type Job struct {
	Boot     int      // 1 for the first start of this guest
	Seed     []byte   // for the kernel's random number generator
	Modules  []string // kernel modules to load, in this order; empty for a kernel with everything built in
	Mounts   []Mount
	Shares   []Share
	Terminal bool     // run the command on the console, as a login does
	Args     []string // the command
	Dir      string   // its working directory
	Env      []string // its whole environment but BootEnv and TMPDIR
}

// A Mount is a drive that carries a file system.
type Mount struct {
	Drive  string // the drive's id, which is its serial number
	FS     string // "ext4" or "xfs"
	Sector int    // logical sector size that the file system is made for
}

// A Share is a directory of the host, mounted read-only at the same path.
type Share struct {
	Tag  string
	Path string
}

// The guest ends by writing one byte to the isa-debug-exit device at ExitPort;
// QEMU then exits with byte<<1|1. The byte carries a mark beside the exit
// code, because QEMU's own exit with status 1 would look like success.
const (
	ExitPort = 0xf4
	exitMark = 0x40
	codeMask = 0x3f
)

// Exit codes with a meaning of their own.
const (
	SetupFailed = 63 // init did not get as far as running the command
	Signalled   = 62 // the command was killed, or its code does not fit
)

// ExitByte is the byte that reports an exit code. Codes that do not fit are
// reported as Signalled.
func ExitByte(code int) byte {
	if code < 0 || code > SetupFailed {
		code = Signalled
	}
	return exitMark | byte(code)
}

// ExitCode reads an exit code out of the exit status of QEMU, and reports
// whether there was one: a guest that died before its report has none.
func ExitCode(status int) (code int, ok bool) {
	b := status >> 1
	if status&1 == 0 || b&^codeMask != exitMark {
		return 0, false
	}
	return b & codeMask, true
}
