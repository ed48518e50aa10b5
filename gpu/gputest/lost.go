package gputest

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// lostCases lose a context, and with it the GPU.
var lostCases = []testCase{
	{"lost-plain-host", lostPlainHost},
	{"lost-garbage", lostGarbage},
	{"lost-freed", lostFreed},
	{"lost-misaligned", lostMisaligned},
	{"lost-foreign", lostForeign},
	{"lost-queue", lostQueue},
	{"lost-after", lostAfter},
}

// lose runs a kernel that writes the word at a, and notes the state of the
// context afterwards.
func (b *bench) lose(a gpu.Addr) {
	b.Helper()
	*b.lost = true
	s := b.stream()
	b.note("launch", s.Launch(b.kernel("culvert_counter"), one(), one(), a))
	b.note("synchronise", s.Synchronize())
	b.note("device", b.dev.Synchronize())
}

// lostPlainHost lets a kernel access memory that was never registered.
func lostPlainHost(b *bench) {
	v, err := b.dev.Attribute(gpu.AttrPageableMemoryAccess)
	b.needs(err == nil && v == 0, "a GPU without PAGEABLE_MEMORY_ACCESS")
	b.apart()
	plain := pages(b, 4096, rw)
	before := plain[0]
	b.lose(addr(plain))
	b.equal("unchanged", plain[0] == before, true)
}

// lostGarbage tries every call after the context was lost.
func lostGarbage(b *bench) {
	b.apart()
	o := b.dev
	a, s, e := b.alloc(gpu.KindDevice, 4096), b.stream(), b.event()
	m := got(o.Load(kernels.PTX)).must(b)
	b.lose(0x10000)
	b.note("again", o.Synchronize())
	b.note("copy-in", o.CopyIn(a, make([]byte, 8)))
	b.note("copy-out", o.CopyOut(make([]byte, 8), a))
	b.note("fill", o.Fill(a, 0, 1, 8))
	b.note("alloc", errOf(o.Alloc(gpu.KindDevice, 4096, 0)))
	b.note("alloc-host", errOf(o.Alloc(gpu.KindHost, 4096, 0)))
	_, _, err := o.MemInfo()
	b.note("mem-info", err)
	b.note("pointer", errOf(o.Pointer(a)))
	b.note("new-stream", errOf(o.NewStream()))
	b.note("stream-fill", s.Fill(a, 0, 1, 8))
	b.note("stream-done", errOf(s.Done()))
	b.note("event-synchronise", e.Synchronize())
	b.note("func", errOf(m.Func("culvert_counter")))
	b.note("free", o.Free(a))
	b.note("stream-close", s.Close())
	b.note("event-close", e.Close())
	b.note("module-close", m.Close())
	b.fact("close", o.Close()) // has a stream and a module left to close
}

func lostFreed(b *bench) {
	b.apart()
	a := b.alloc(gpu.KindDevice, 4<<20)
	b.must(b.dev.Free(a))
	b.lose(a)
}

func lostMisaligned(b *bench) {
	b.apart()
	b.lose(b.alloc(gpu.KindDevice, 4096) + 2)
}

// lostForeign lets a kernel access memory of another context.
func lostForeign(b *bench) {
	b.on(b.other()).lose(b.alloc(gpu.KindDevice, 4<<20))
}

// lostQueue shows what happens to work queued behind a kernel that fails.
func lostQueue(b *bench) {
	b.apart()
	*b.lost = true
	h := b.alloc(gpu.KindHost, 8)
	v := gpu.HostBytes(h, 8)
	v[0] = 1
	f, s, e, g := b.kernel("culvert_counter"), b.stream(), b.event(), b.gate()
	g.block(b, s) // until all is in the queue
	b.must(s.Launch(f, one(), one(), gpu.Addr(0x10000)))
	b.note("fill", s.Fill(h, 2, 1, 8))
	b.note("record", s.Record(e))
	g.open()
	b.note("synchronise", s.Synchronize())
	b.result("fill-done", v[0] == 2)
	b.note("event", e.Synchronize())
}

// lostAfter shows whether the process can continue: with the other contexts,
// with a new one, and after all were closed.
func lostAfter(b *bench) {
	lost := b.other()
	b.on(lost).lose(0x10000)
	a, err := b.dev.Alloc(gpu.KindDevice, 4096, 0)
	b.note("primary-alloc", err)
	if err == nil {
		b.note("primary-fill", b.dev.Fill(a, 1, 1, 4096))
	}
	b.note("primary-synchronise", b.dev.Synchronize())
	o, err := b.dev.NewContext(0)
	if b.note("new-context", err) == gpu.Success {
		b.note("new-context-synchronise", o.Synchronize())
		b.note("new-context-close", o.Close())
	}
	b.fact("close-lost", lost.Close())
	b.fact("close-primary", b.dev.Close())
	again, err := b.drv.Open(0)
	if b.note("reopen", err) == gpu.Success {
		b.note("reopen-synchronise", again.Synchronize())
		o, err := again.NewContext(0)
		if b.note("reopen-new-context", err) == gpu.Success {
			b.fact("reopen-new-context-close", o.Close())
		}
		b.fact("reopen-close", again.Close())
	}
}
