package ladder

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/route"
)

// A Ladder holds the routes to one GPU, best first.
type Ladder struct {
	routes []Route
	direct []Route // those of them that bypass host memory for files
	// absent are the routes that this machine does not have, with reasons. They are
	// part of every plan.
	absent []*route.Decline
	pinned *tune.PinnedRate
	prover *prover
}

// Settings change the routes of a GPU. A zero field keeps the route's own choice.
type Settings struct {
	Budget     int64 // of the ring, in bytes
	Slot       int   // bytes of a slot of the ring
	Workers    int   // of the ring
	Poll       int64 // bytes of a small read up to which the ring polls for its copy
	BARLimit   uint64
	StagedOnly bool // uses no route that bypasses host memory, nor BAR1
}

// SetLimits changes Slot, Poll and BARLimit, for the transfers and registrations that
// follow. With an error the slots are as before.
func (l *Ladder) SetLimits(set Settings) error {
	for _, r := range l.routes {
		if err := r.Configure(set); err != nil {
			return err
		}
	}
	return nil
}

// Open finds the routes to a GPU. Probes look for device nodes and modules in os. A
// route that is switched off is not probed.
func Open(device gpu.Device, os dev.OS, log *slog.Logger, set Settings) *Ladder {
	l := &Ladder{pinned: tune.Pinned(device.Info(), os.FS())}
	off := SwitchedOff()
	for _, c := range candidates(device, os, log, set, off) {
		r, absent := c.open(off, set.StagedOnly)
		if absent != nil {
			l.absent = append(l.absent, absent)
			continue
		}
		l.routes = append(l.routes, r)
		if c.id.Direct() && !c.ownDevice {
			l.direct = append(l.direct, r)
		}
	}
	l.prover = newProver(device, os, log, l.routes)
	return l
}

// A candidate is a route that a machine may have.
type candidate struct {
	id        route.ID
	ownDevice bool // for sources with a device of their own, not for files
	find      func() (Route, *route.Decline)
}

// candidates are all routes, best first.
func candidates(device gpu.Device, os dev.OS, log *slog.Logger, set Settings, off []route.ID) []candidate {
	staging := newRing(device, log, set)
	beside := staging
	if slices.Contains(off, route.Ring) {
		beside = nil
	}
	return []candidate{
		{route.Vendor, false, func() (Route, *route.Decline) { return findVendor(device, os) }},
		{route.NVFS, false, func() (Route, *route.Decline) { return findNVFS(device, os) }},
		{route.P2PDMA, false, func() (Route, *route.Decline) { return findP2PDMA(device, os) }},
		{route.NVMe, true, func() (Route, *route.Decline) { return newSourceRoute(route.NVMe, device), nil }},
		{route.RDMA, true, func() (Route, *route.Decline) { return newSourceRoute(route.RDMA, device), nil }},
		{route.Bar, false, func() (Route, *route.Decline) { return findBar(device, os, set.BARLimit, beside) }},
		{route.Ring, false, func() (Route, *route.Decline) { return staging, nil }},
		{route.Mapped, false, func() (Route, *route.Decline) { return newMapped(device) }},
		{route.Host, false, func() (Route, *route.Decline) { return newHost(device), nil }},
	}
}

// open finds the route, or says why the ladder does not have it.
func (c *candidate) open(off []route.ID, stagedOnly bool) (Route, *route.Decline) {
	switch {
	case slices.Contains(off, c.id):
		return nil, switchedOff(c.id)
	case stagedOnly && !c.id.Staged():
		return nil, decline(c.id, "configuration", "only staged routes are allowed", "set force_compat_mode to false, or Config.StagedOnly")
	}
	return c.find()
}

// HostMemory is the ladder for memory that is on no GPU.
func HostMemory() *Ladder { return &Ladder{routes: []Route{newHost(nil)}} }

// Register tells the routes about a buffer that will be used again.
func (l *Ladder) Register(span gpu.Span, kind gpu.Kind) {
	for _, r := range l.routes {
		r.Register(span, kind)
	}
}

// Deregister is the inverse of Register. No transfer may use the buffer.
func (l *Ladder) Deregister(span gpu.Span) {
	for _, r := range l.routes {
		r.Deregister(span)
	}
}

// Prepare makes what routes make at first use. A transfer that a stream waits for must
// not make it: pinning memory can wait for streams.
func (l *Ladder) Prepare() {
	if len(l.direct) > 0 {
		_ = l.prover.prepareProofs(l.direct...) // a write then declines the route, with the reason
	}
	for _, r := range l.routes {
		r.Prepare(false)
	}
}

// PrepareLarge makes what a large transfer needs, while its caller does something
// else. Where a drive can reach the GPU itself, staging memory would be wasted.
func (l *Ladder) PrepareLarge() {
	if len(l.direct) > 0 {
		return
	}
	for _, r := range l.routes {
		r.Prepare(true)
	}
}

// Has reports whether the machine has a route.
func (l *Ladder) Has(id route.ID) bool {
	for _, d := range l.absent {
		if d.Route == id {
			return false
		}
	}
	return true
}

// Close closes the routes.
func (l *Ladder) Close() error {
	var errs []error
	if l.prover != nil {
		errs = append(errs, l.prover.close())
	}
	for _, r := range l.routes {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
