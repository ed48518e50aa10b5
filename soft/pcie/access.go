package pcie

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/culvert-io/culvert/soft/internal/gate"
)

// Dir is the direction of a DMA, seen from the device.
type Dir uint8

const (
	Read  Dir = iota // the device reads memory
	Write            // the device writes memory
)

func (d Dir) String() string {
	if d == Read {
		return "DMA read"
	}
	return "DMA write"
}

// A Range is a range of bus addresses.
type Range struct {
	Bus uint64
	Len int
}

// An Access is memory that a device uses for DMA. It is a small value; copies mean the
// same access.
type Access struct {
	s   *access
	seq uint64
}

func (a Access) valid() bool { return a.s != nil && a.s.seq.Load() == a.seq }

// Segs returns the memory in the order of the bus addresses, valid until Release.
func (a Access) Segs() [][]byte {
	if !a.valid() {
		return nil
	}
	return a.s.segs
}

// Len returns the number of bytes.
func (a Access) Len() int {
	if !a.valid() {
		return 0
	}
	return a.s.n
}

// Peer reports whether any of the memory is that of a device.
func (a Access) Peer() bool {
	return a.valid() && slices.ContainsFunc(a.s.parts, func(p part) bool { return p.window.owner != nil })
}

// Release ends the access and counts its first moved bytes. It returns an error, but
// ends the access, if moved is out of range or a device was unplugged meanwhile. A
// second call returns [ErrReleased].
func (a Access) Release(moved int) error {
	if a.s == nil {
		return ErrReleased
	}
	a.s.fn.f.cfg.Points.At("pcie.release", a.seq)
	if !a.s.seq.CompareAndSwap(a.seq, a.seq+1) {
		return ErrReleased
	}
	return a.s.end(moved)
}

// A part of an access is in one window.
type part struct {
	window *Window
	n      int
	top    *Switch // where requests turn round; nil for the root
}

// An access is the reusable state behind an Access. seq grows with each use and release,
// which makes an old Access invalid.
type access struct {
	seq   atomic.Uint64
	fn    *Function
	dir   Dir
	n     int
	segs  [][]byte
	parts []part
	gates []*gate.Gate
	held  []Releaser
}

func (a *access) end(moved int) error {
	fn, n, dir := a.fn, a.n, a.dir
	var err error
	if moved < 0 || moved > n {
		err = fmt.Errorf("%s: release %d of %d bytes: %w", fn.name, moved, n, ErrMalformed)
		moved = max(0, min(moved, n))
	}
	left := moved
	for i := range a.parts {
		k := min(left, a.parts[i].n)
		if k == 0 {
			break
		}
		fn.count(a.parts[i], uint64(k), dir)
		left -= k
	}
	gone := fn.removed.Load()
	for _, p := range a.parts {
		gone = gone || p.window.owner != nil && p.window.owner.removed.Load()
	}
	a.release()
	if err == nil && gone {
		err = fmt.Errorf("%s: %v of %d bytes: %w", fn.name, dir, n, ErrRemoved)
	}
	return err
}

func (a *access) release() {
	for _, h := range a.held {
		h.Release()
	}
	for _, g := range a.gates {
		g.Leave()
	}
	a.fn.f.accesses.Add(-1)
	clear(a.segs)
	clear(a.parts)
	clear(a.gates)
	clear(a.held)
	a.segs, a.parts, a.gates, a.held = a.segs[:0], a.parts[:0], a.gates[:0], a.held[:0]
	a.fn.unused.Put(a)
}

// enter enters a gate, once per access.
func (a *access) enter(g *gate.Gate) bool {
	if n := len(a.gates); n > 0 && a.gates[n-1] == g {
		return true
	}
	if !g.Enter() {
		return false
	}
	a.gates = append(a.gates, g)
	return true
}
