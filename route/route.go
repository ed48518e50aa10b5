package route

import (
	"context"
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// A Dir is the direction of a transfer.
type Dir uint8

const (
	Read  Dir = iota // file to GPU
	Write            // GPU to file
)

func (d Dir) String() string {
	switch d {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("Dir(%d)", uint8(d))
}

// MarshalText makes JSON carry the word.
func (d Dir) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// An Op is one request: Mem.Len bytes between the file at Off and memory of the
// given kind. Kinds that are not on a device are plain host memory to a route.
type Op struct {
	Dir  Dir
	File *storage.File
	Off  int64
	Mem  gpu.Span
	Kind gpu.Kind
	// Buf is the registered buffer that Mem is part of, and that stays registered
	// during the op; nil where there is none.
	Buf Registration
}

// A Registration is a registered buffer.
type Registration interface {
	// Live returns an error that wraps ErrFreed when any of the memory of a span
	// is not the allocation any more that was registered.
	Live(gpu.Span) error
	// LiveLately is Live with an answer that may be a millisecond old at the time
	// now, which counts from any fixed moment.
	LiveLately(s gpu.Span, now time.Duration) error
}

// A Route moves bytes one way. It cuts requests for itself.
//
// Run fills res[i] for every op and returns the first error; res[i].Bytes then
// says how far op i came. A short count at the end of the file is no error.
// When Run returns, also because ctx was cancelled, nothing touches the memory
// any more. Run is safe for concurrent use, and allocates nothing in steady
// state.
type Route interface {
	ID() ID
	// Probe looks whether this route exists for the file on this GPU. It may
	// look around in /proc and /sys, but moves no data.
	Probe(*storage.File) Verdict
	// Takes says whether the route wants this op; nil means that it does.
	Takes(*Op) *Decline
	Run(ctx context.Context, ops []Op, res []Receipt) error
	Close() error
}

// A Verdict is the answer of a probe: nil, or the first test that failed.
type Verdict = *Decline

// A Decline says why a rung was not taken: which test failed, what was seen, and
// what would change it.
type Decline struct {
	Route    ID     `json:"route"`
	Test     string `json:"test"`          // "kernel module"
	Evidence string `json:"evidence"`      // "/dev/nvidia-fs0: no such file or directory"
	Fix      string `json:"fix,omitempty"` // "modprobe nvidia-fs"
}

func (d *Decline) String() string {
	s := d.Route.String() + ": " + d.Test + ": " + d.Evidence
	if d.Fix != "" {
		s += " (fix: " + d.Fix + ")"
	}
	return s
}
