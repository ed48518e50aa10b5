// Package job is the protocol between the host and the guest's init: what to set up,
// what to run, and how the exit code is returned.
package job

// Path is where init finds its job, as JSON.
const Path = "/lab/job.json"

// Names of the virtio serial ports for the command's output and requests to the
// host.
const (
	PortStdout  = "lab.stdout"
	PortStderr  = "lab.stderr"
	PortControl = "lab.control"
)

// The requests of a guest, each with its arguments after blanks.
const (
	Unplug   = "unplug"   // a drive's id: remove the drive from its slot
	PowerCut = "powercut" // kill the guest and boot it again
	Drain    = "drain"    // byte counts of stdout and stderr: answer when the host has them
)

// OK is the answer to a request that succeeded; any other is an error.
const OK = "ok"

// Report begins a line of output that is part of the result of a suite.
const Report = "LAB REPORT: "

// BootEnv is the variable with the number of the boot, from 1: a test knows by it
// that it runs in a guest, and how often the power was cut.
const BootEnv = "CULVERT_LAB_BOOT"

// GuestEnv is the variable with the number of a guest that has a peer, 1 or 2.
const GuestEnv = "CULVERT_LAB_GUEST"

// MountRoot is the directory in which drives with a file system are mounted, by id.
const MountRoot = "/mnt"

// A Job is what init does.
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

// A Mount is a drive with a file system.
type Mount struct {
	Drive  string // the drive's id, which is its serial number
	FS     string // "ext4" or "xfs"
	Sector int    // logical sector size that the file system is made for
	Remote bool   // over RDMA, from the kernel's NVMe target to its host
}

// A Share is a directory of the host, mounted read-only at the same path.
type Share struct {
	Tag  string
	Path string
}

// The guest ends by writing one byte to the isa-debug-exit device at ExitPort; QEMU
// then exits with byte<<1|1. The byte has a mark besides the exit code, because
// QEMU's own exit status 1 would mean success.
const (
	ExitPort = 0xf4
	exitMark = 0x40
	codeMask = 0x3f
)

// Special exit codes.
const (
	SetupFailed = 63 // init did not get as far as running the command
	Signalled   = 62 // the command was killed, or its code does not fit
)

// ExitByte encodes an exit code. Codes that do not fit become Signalled.
func ExitByte(code int) byte {
	if code < 0 || code > SetupFailed {
		code = Signalled
	}
	return exitMark | byte(code)
}

// ExitCode decodes the exit status of QEMU, and reports whether it has an exit code:
// a guest that died before its report has none.
func ExitCode(status int) (code int, ok bool) {
	b := status >> 1
	if status&1 == 0 || b&^codeMask != exitMark {
		return 0, false
	}
	return b & codeMask, true
}
