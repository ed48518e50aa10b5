package transcript

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/dev"
)

// A World is what a conversation is replayed against.
type World struct {
	OS dev.OS

	// Buffer makes the memory that a placeholder such as buf0 stands for. It is
	// called once for each. Its bytes are zero.
	Buffer func(name string) (addr uint64, err error)
	// Load and Store are how its owner, a GPU, gets at that memory.
	Load, Store func(addr uint64, p []byte) error
	// Knob turns what stood for the GPU driver when the conversation was
	// recorded: "revoke", "fail_next", "live".
	Knob func(name, value string) (int64, error)
	// Child is a node in the hands of another process, for steps that are
	// called child.something.
	Child func(dev.Node) dev.Node
	// Private maps with MAP_PRIVATE, which a dev.Node cannot.
	Private func(n dev.Node, off int64, size, prot int) (dev.Mapping, error)

	// Judge, if any, knows where the answers differ on purpose.
	Judge Judge
	// Client, if any, has a client send what it would send itself.
	Client Client
}

// A Judge explains differences that are there on purpose. It sees every step,
// so that it knows what state the module was in.
type Judge interface{ Judge(e *Event) Verdict }

// An Event is a step and what became of it.
type Event struct {
	*Step
	Node     dev.Node // of the step's descriptor; nil when it has none
	Sent     []byte   // the argument of an ioctl
	Recorded []byte   // and the recorded answer, with 0 for clocks; nil where values are not known
	Offset   uint64   // of an mmap
	Addr     uint64   // of an access or munmap
	Got      Answer
	Bindings Bindings
}

// A Verdict says why a difference is there on purpose: Reason is "" where it is
// not. Then, if any, brings the twin to where the module was, so that the
// conversation can go on.
type Verdict struct {
	Reason string
	Then   func() error
}

// A Client sends an ioctl of its own accord. handled is false where no client
// would send these bytes. The error is about the client: what the node answered
// is in the exchange.
type Client interface {
	Ioctl(e *Event) (x Exchange, handled bool, err error)
}

// An Exchange is an ioctl as it went through a node.
type Exchange struct {
	Req     uintptr
	In, Out []byte
	Err     error
}

// An Answer is what a call gave.
type Answer struct {
	Ret   string // a number, "mapping", or "fault"
	Errno int
	Out   []byte // of an ioctl the argument afterwards, of an access what was loaded
	Text  string // of a file

	ByClient bool // a client sent the request
}

func (a Answer) String() string {
	s := "returns " + a.Ret
	if a.Errno != 0 {
		s += fmt.Sprintf(", errno %d", a.Errno)
	}
	return s
}

// A Result is the judgement on a step.
type Result struct {
	*Step
	Got    Answer
	Diff   string // what differs; "" when nothing does
	Reason string // why that is as it should be
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
