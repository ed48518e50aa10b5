package transcript

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/dev"
)

// A Target is the machine on which a conversation is replayed.
type Target struct {
	OS dev.OS

	// Buffer allocates the zeroed memory that a placeholder such as buf0 stands
	// for. It is called once for each.
	Buffer func(name string) (addr uint64, err error)
	// Load and Store access that memory as its owner, the GPU.
	Load, Store func(addr uint64, p []byte) error
	// Knob controls what replaced the GPU driver during the recording:
	// "revoke", "fail_next", "live".
	Knob func(name, value string) (int64, error)
	// Child is a node as another process uses it, for steps named child.*.
	Child func(dev.Node) dev.Node
	// Private maps with MAP_PRIVATE, which dev.Node does not support.
	Private func(n dev.Node, off int64, size, prot int) (dev.Mapping, error)

	// Judge, if any, explains intended differences.
	Judge Judge
	// Client, if any, sends the requests that a client would send.
	Client Client
}

// A Judge explains intended differences. It sees every step, and so knows the
// state of the module.
type Judge interface{ Judge(e *Event) Verdict }

// An Event is a step and its outcome.
type Event struct {
	*Step
	Node     dev.Node // of the step's descriptor; nil when it has none
	Sent     []byte   // the argument of an ioctl
	Recorded []byte   // the recorded answer, with 0 for clocks; nil if a value is unknown
	Offset   uint64   // of an mmap
	Addr     uint64   // of an access or munmap
	Got      Answer
	Bindings Bindings
}

// A Verdict has the reason of an intended difference; Reason is "" for others.
// Then, if any, brings the emulated module into the state of the real one.
type Verdict struct {
	Reason string
	Then   func() error
}

// A Client sends an ioctl through a client of the module. handled is false if no
// client would send these bytes. The error is about the client; the answer is in
// the exchange.
type Client interface {
	Ioctl(e *Event) (x Exchange, handled bool, err error)
}

// An Exchange is an ioctl as it went through a node.
type Exchange struct {
	Req     uintptr
	In, Out []byte
	Err     error
}

// An Answer is the outcome of a call.
type Answer struct {
	Ret   string // a number, "mapping", or "fault"
	Errno int
	Out   []byte // the argument after an ioctl, the bytes of a load
	Text  string // contents of a file

	ByClient bool // a client sent the request
}

// A Result is a step with its judgement.
type Result struct {
	*Step
	Got    Answer
	Diff   string // what differs; "" if nothing does
	Reason string // why that is intended
}

// Failed reports whether a difference has no reason.
func (r Result) Failed() bool { return r.Diff != "" && r.Reason == "" }

func (r Result) String() string {
	switch {
	case r.Diff == "":
		return fmt.Sprintf("%-34s same", r.Name)
	case r.Reason != "":
		return fmt.Sprintf("%-34s differs on purpose: %s (%s)", r.Name, r.Reason, r.Diff)
	}
	return fmt.Sprintf("%-34s DIFFERS: %s", r.Name, r.Diff)
}
