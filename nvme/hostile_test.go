package nvme_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// TestHostileCompletions has the controller answer commands in every wrong way.
// Requests are answered once, nothing around their memory changes, and when the
// controller has come to its senses everything works.
func TestHostileCompletions(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(e softnvme.Completion) []softnvme.Completion
		resets bool // it takes a reset to get every command answered
		strays bool // there are answers to nothing
	}{
		"twice": {tamper: func(e softnvme.Completion) []softnvme.Completion { return []softnvme.Completion{e, e} }, strays: true},
		"wrong phase": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			e.DW3 ^= 1 << 16
			return []softnvme.Completion{e}
		}, resets: true},
		"bogus id first": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			b := e
			b.DW3 ^= 0xfc00 // the slot's number stays
			return []softnvme.Completion{b, e}
		}, strays: true},
		"slot that is none": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			b := e
			b.DW3 |= 0x3ff
			return []softnvme.Completion{b, e}
		}, strays: true},
		"bogus id": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			e.DW3 ^= 0x8000
			return []softnvme.Completion{e}
		}, resets: true, strays: true},
		"other queue": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			e.SQID += 5
			return []softnvme.Completion{e}
		}, resets: true, strays: true},
		"late copy": {tamper: lateCopies(), strays: true},
		"garbage head": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			e.SQHD = 0xbeef
			return []softnvme.Completion{e}
		}},
		"garbage status": {tamper: func(e softnvme.Completion) []softnvme.Completion {
			e.DW3 |= 0xfffe << 16
			return []softnvme.Completion{e}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			cfg := nvme.Config{Timeout: patience}
			if c.resets {
				cfg.Timeout = soon
			}
			// One worker, so that completions are posted in the order in which
			// they were tampered with.
			r := newFixtureOn(t, softnvme.Config{Workers: 1}, cfg, nil)
			r.works()
			r.drive.Tamper(func(e softnvme.Completion) []softnvme.Completion {
				if e.SQID == 0 {
					return []softnvme.Completion{e}
				}
				return c.tamper(e)
			})
			answers := map[*nvme.Request]int{}
			done := make([]*nvme.Request, 4)
			guard(r.buf.Bytes())
			for range 3 {
				list := r.reads(8)
				r.submit(list)
				for left := len(list); left > 0; {
					n, err := r.q.Reap(r.ctx, done)
					r.check(err)
					left -= n
					for _, q := range done[:n] {
						answers[q]++
						wantHostile(t, name, q.Err())
					}
				}
			}
			for q, n := range answers {
				if n != 1 {
					t.Errorf("block %d was answered %d times", q.LBA, n)
				}
			}
			if len(answers) != 24 {
				t.Errorf("%d requests were answered, want 24", len(answers))
			}
			if got := r.c.Resets() > 0; c.resets && !got {
				t.Error("the controller was not reset")
			}
			if got := r.q.Strays() > 0; got != c.strays {
				t.Errorf("%d answers to nothing", r.q.Strays())
			}
			if !guarded(r.buf.Bytes()[8*4096:]) {
				t.Error("memory changed that no command was about")
			}
			r.drive.Tamper(nil)
			r.check(r.c.Reset())
			r.works()
		})
	}
}

// lateCopies posts each completion once more, before the next one and as an
// error: by then its slot has another command in it.
func lateCopies() func(softnvme.Completion) []softnvme.Completion {
	var mu sync.Mutex
	var last []softnvme.Completion
	return func(e softnvme.Completion) []softnvme.Completion {
		mu.Lock()
		defer mu.Unlock()
		out := append(slices.Clone(last), e)
		e.DW3 |= uint32(abi.INTERNAL_ERROR) << 17
		last = []softnvme.Completion{e}
		return out
	}
}

func wantHostile(t *testing.T, name string, err error) {
	t.Helper()
	var status nvme.Status
	switch {
	case name == "garbage status" && !errors.As(err, &status):
		t.Errorf("%v, want a status", err)
	case name == "garbage status", err == nil, errors.Is(err, nvme.ErrReset):
	default:
		t.Error(err)
	}
}

func guard(b []byte) {
	for i := range b {
		b[i] = 0xee
	}
}

func guarded(b []byte) bool { return bytes.Count(b, []byte{0xee}) == len(b) }

// TestHostileMix tampers at random, also with admin commands, while the
// controller is used, reset and given new queues. Whatever happens, every
// request is answered and the driver can be closed.
func TestHostileMix(t *testing.T) {
	t.Parallel() // most of it is waiting
	for seed := range uint64(6) {
		r := newFixture(t, nvme.Config{Timeout: soon / 2}, func(tr nvme.Transport) nvme.Transport { return impatient{tr, false} })
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 9))
		r.drive.Tamper(func(e softnvme.Completion) []softnvme.Completion {
			mu.Lock()
			defer mu.Unlock()
			switch rnd.IntN(30) {
			case 0:
				return nil
			case 1:
				return []softnvme.Completion{e, e}
			case 2:
				e.DW3 = rnd.Uint32()
			case 3:
				e.SQHD, e.SQID = uint16(rnd.Uint32()), uint16(rnd.Uint32())
			case 4:
				e.DW3 |= uint32(rnd.IntN(1<<15)) << 17
			}
			return []softnvme.Completion{e}
		})
		guard(r.buf.Bytes())
		for range 8 {
			list := r.reads(16)
			n, err := r.q.Submit(list...)
			if err != nil {
				break // given up: that is an answer too
			}
			for _, q := range list[:n] {
				_ = r.q.Wait(r.ctx, q) // any answer will do
				if !q.Done() {
					t.Fatal("a request was not answered")
				}
			}
			if q, err := r.c.NewQueue(3); err == nil {
				_ = q.Close()
			}
		}
		if !guarded(r.buf.Bytes()[16*4096:]) {
			t.Error("memory changed that no command was about")
		}
		r.drive.Tamper(nil)
		if r.c.Err() == nil {
			r.check(r.c.Reset())
			r.works()
		}
	}
}

// TestEndlessCompletions has the controller post without end: nobody is held up
// for ever.
func TestEndlessCompletions(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := newFixture(t, nvme.Config{Timeout: soon}, nil)
	r.drive.Tamper(func(e softnvme.Completion) []softnvme.Completion {
		if e.SQID == 0 {
			return []softnvme.Completion{e}
		}
		var flood []softnvme.Completion
		for i := range 500 {
			b := e
			b.DW3 ^= uint32(i%63+1) << 10
			flood = append(flood, b)
		}
		return append(flood, e)
	})
	list := r.reads(4)
	r.submit(list)
	for _, q := range list {
		if err := r.q.Wait(r.ctx, q); err != nil && !errors.Is(err, nvme.ErrReset) {
			t.Error(err)
		}
	}
	r.drive.Tamper(nil)
	r.check(r.c.Reset())
	r.works()
}

// lying is a transport whose registers say what the test wants.
type lying struct {
	nvme.Transport
	cap  func(uint64) uint64
	csts func(uint32) uint32
	size uint64
}

func (l lying) Load64(off uint64) uint64 {
	v := l.Transport.Load64(off)
	if off == abi.REG_CAP && l.cap != nil {
		v = l.cap(v)
	}
	return v
}

func (l lying) Load32(off uint64) uint32 {
	v := l.Transport.Load32(off)
	if off == abi.REG_CSTS && l.csts != nil {
		v = l.csts(v)
	}
	return v
}

func (l lying) BARSize() uint64 {
	if l.size > 0 {
		return l.size
	}
	return l.Transport.BARSize()
}

// TestHostileRegisters opens controllers whose registers make no sense.
func TestHostileRegisters(t *testing.T) {
	quick := func(v uint64) uint64 { return v &^ (0xff << abi.CAP_TO_SHIFT) }
	for name, l := range map[string]lying{
		"gone":             {cap: func(uint64) uint64 { return 1<<64 - 1 }},
		"queues of one":    {cap: func(v uint64) uint64 { return v &^ 0xffff }},
		"no command set":   {cap: func(v uint64) uint64 { return v &^ (0xff << 37) }},
		"large pages":      {cap: func(v uint64) uint64 { return v | 2<<abi.CAP_MPSMIN_SHIFT }},
		"far doorbells":    {cap: func(v uint64) uint64 { return v | 15<<abi.CAP_DSTRD_SHIFT }},
		"small BAR":        {size: 0x1008},
		"never ready":      {cap: quick, csts: func(v uint32) uint32 { return v &^ abi.CSTS_RDY }},
		"always ready":     {cap: quick, csts: func(v uint32) uint32 { return v | abi.CSTS_RDY }},
		"always fatal":     {csts: func(v uint32) uint32 { return v | abi.CSTS_CFS }},
		"status all ones":  {csts: func(uint32) uint32 { return abi.GONE }},
		"half the entries": {cap: func(v uint64) uint64 { return v&^0xffff | 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			b := newMachine(t, soft.Config{}, soft.Drive{})
			l.Transport = b.Transport(0)
			start := time.Now()
			c, err := nvme.Open(l, nvme.Config{Timeout: patience})
			if name == "half the entries" {
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatalf("%+v", c.Info())
			}
			if d := time.Since(start); d > 25*time.Second {
				t.Errorf("it took %v to say %v", d, err)
			}
		})
	}
}
