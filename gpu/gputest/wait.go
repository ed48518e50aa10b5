package gputest

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
)

var waitCases = []testCase{
	{"write-value", writeValue},
	{"write-order", writeOrder},
	{"wait-conditions", waitConditions},
	{"wait-places", waitPlaces},
	{"wait-wrong", waitWrong},
}

func writeValue(b *bench) {
	s := b.stream()
	for _, k := range kinds {
		a := b.alloc(k, 64)
		b.must(b.dev.Fill(a, 0xee, 1, 64))
		b.note(k.String()+".4", s.Write(a+4, 0x1122334455667788, 4))
		b.note(k.String()+".8", s.Write(a+16, 0x1122334455667788, 8))
		b.finished(k.String(), s)
		got := b.read(a, 32)
		b.result(k.String()+".bytes", fmt.Sprintf("%x", got))
	}
}

// writeOrder shows that a written value is visible only after earlier work.
func writeOrder(b *bench) {
	const n = 64 << 20
	flag, a, h := b.gate(), b.alloc(gpu.KindDevice, n), b.alloc(gpu.KindHost, 8)
	flag.w.Store(0)
	s := b.stream()
	b.must(b.dev.Fill(a, 0, 1, n))
	b.must(s.Fill(a, 0x77, 1, n))
	b.must(s.Copy(h, a+n-8, 8))
	b.must(s.Write(flag.a, 1, 4))
	seen := finishes(func() {
		for flag.w.Load() != 1 {
			_, _ = s.Done() // yields the processor, and some drivers make progress only here
		}
	})
	b.equal("seen", seen, true)
	b.equal("after-copy", gpu.HostBytes(h, 8)[7], byte(0x77))
	b.finished("synchronise", s)
}

// waitConditions tries each comparison on both sides of its limit.
func waitConditions(b *bench) {
	const top32, top64 = 1 << 31, 1 << 63
	for _, c := range []struct {
		cond         gpu.Cond
		width        int
		value        uint64
		blocks, lets uint64 // words that block the stream, and that let it continue
	}{
		{gpu.CondGEQ, 4, 5, 4, 5},
		{gpu.CondGEQ, 4, 5, 5 + top32, 5 + top32 - 1}, // the compare is cyclic
		{gpu.CondGEQ, 4, 0xfffffff0, 0xffffffef, 3},
		{gpu.CondGEQ, 8, 5, 5 + top64, 5 + top64 - 1},
		{gpu.CondGEQ, 8, 1<<64 - 16, 1<<64 - 17, 3},
		{gpu.CondEQ, 4, 7, 8, 7},
		{gpu.CondEQ, 8, 7, 7 + 1<<32, 7},
		{gpu.CondAND, 4, 6, 9, 2},
		{gpu.CondAND, 8, 6 << 32, 6, 2 << 32},
		{gpu.CondNOR, 4, 0xff, 0xffffff00, 0xfffffe00},
		{gpu.CondNOR, 8, 0xff, 1<<64 - 0x100, 1<<64 - 0x200},
	} {
		step := fmt.Sprintf("%d.%d.%#x", c.cond, c.width, c.value)
		g := b.gate()
		g.w.Store(c.blocks)
		s, other := b.stream(), b.stream()
		if b.note(step, s.Wait(g.a, c.value, c.width, c.cond)) != gpu.Success {
			continue
		}
		b.must(other.Fill(b.alloc(gpu.KindDevice, 4), 0, 4, 1))
		b.must(other.Synchronize())
		b.equal(step+".holds", b.done(s), false)
		g.w.Store(c.lets)
		b.finished(step+".lets", s)
		b.must(s.Close())
		b.must(other.Close())
	}
}

// waitPlaces waits for a condition that is already true, in memory of all kinds.
func waitPlaces(b *bench) {
	for _, k := range kinds {
		a := b.alloc(k, 64)
		b.must(b.dev.Fill(a, 0, 1, 64))
		s := b.stream()
		b.note(k.String()+".4", s.Wait(a, 0, 4, gpu.CondEQ))
		b.note(k.String()+".8", s.Wait(a+8, 0, 8, gpu.CondEQ))
		b.finished(k.String(), s)
	}
	a := b.alloc(gpu.KindDevice, 8)
	b.must(b.dev.Fill(a, 0, 4, 2))
	waiter, writer := b.stream(), b.stream()
	b.must(waiter.Wait(a, 3, 8, gpu.CondGEQ))
	b.must(writer.Write(a, 3, 8))
	b.finished("written-by-stream", waiter)
}

func waitWrong(b *bench) {
	b.apart()
	a, s := b.alloc(gpu.KindDevice, 64), b.stream()
	b.must(b.dev.Fill(a, 0, 1, 64))
	for _, w := range []int{0, 1, 2, 16} {
		b.want(fmt.Sprintf("write-width.%d", w), s.Write(a, 0, w), gpu.ErrInvalidValue)
		b.want(fmt.Sprintf("wait-width.%d", w), s.Wait(a, 0, w, gpu.CondEQ), gpu.ErrInvalidValue)
	}
	b.note("write-misaligned.4", s.Write(a+2, 0, 4))
	b.note("write-misaligned.8", s.Write(a+4, 0, 8))
	b.note("wait-misaligned.4", s.Wait(a+2, 0, 4, gpu.CondEQ))
	b.note("wait-misaligned.8", s.Wait(a+4, 0, 8, gpu.CondEQ))
	b.note("wait-condition", s.Wait(a, 0, 4, 17))
	b.note("write-zero-address", s.Write(0, 0, 4))
	b.note("wait-zero-address", s.Wait(0, 0, 4, gpu.CondEQ))
	b.note("write-past-end", s.Write(a+64+512, 0, 4))
	plain := pages(b, 4096, rw)
	clear(plain)
	b.note("write-plain-host", s.Write(addr(plain), 0, 4))
	b.note("wait-plain-host", s.Wait(addr(plain), 0, 4, gpu.CondEQ))
	b.equal("returns", finishes(func() { b.note("context", s.Synchronize()) }), true)
}
