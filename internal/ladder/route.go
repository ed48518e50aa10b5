package ladder

import (
	"context"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A Route moves data one way between sources and one GPU. It splits requests for
// itself.
type Route interface {
	// Traits describes the route for a source, or says why the source cannot use
	// it. It returns neither if the route is for another kind of source. It may look
	// at /proc and /sys, but moves no data.
	Traits(Source) (Traits, *route.Decline)
	// Try reads one block of a source if only a transfer can tell whether the route
	// works. It returns nil if the route works or nothing is known.
	Try(Source) *route.Decline
	// State is what the route knows about an op now. It does no I/O, but may ask about
	// the page cache.
	State(*Op) State
	// Mapping is the registered buffer at base as the CPU sees it; nil if the route
	// has not mapped it.
	Mapping(base gpu.Addr) []byte
	// Run fills res[i] for every op and returns the first error; res[i].Bytes then
	// says how far op i came. A short count at the end of the source is no error.
	// When Run returns, also because ctx was cancelled, nothing touches the memory
	// any more. Run is safe for concurrent use and allocates nothing in steady state.
	Run(ctx context.Context, ops []Op, res []route.Receipt) error
	// Register prepares a buffer that will be used again. A buffer that cannot be
	// prepared is not an error: its requests take another route.
	Register(gpu.Span, gpu.Kind)
	// Deregister is the inverse of Register. No transfer uses the buffer.
	Deregister(gpu.Span)
	// Prepare makes what the first transfer would make: all that a large one needs, or
	// only what a transfer cannot make while a stream waits for it. If that fails, the
	// transfers say why.
	Prepare(large bool)
	// Configure applies changed settings to the transfers and registrations that follow.
	// After an error the route is as before.
	Configure(Settings) error
	Close() error
}

// basic has the methods of a route that needs no trial, has no settings and prepares
// nothing.
type basic struct{}

func (basic) Try(Source) *route.Decline   { return nil }
func (basic) Register(gpu.Span, gpu.Kind) {}
func (basic) Deregister(gpu.Span)         {}
func (basic) Mapping(gpu.Addr) []byte     { return nil }
func (basic) Prepare(bool)                {}
func (basic) Configure(Settings) error    { return nil }
func (basic) Close() error                { return nil }
