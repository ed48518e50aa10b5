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

// lose runs a kernel that touches the word at a, and notes what becomes of the
// context.
func (b *bench) lose(o gpu.Device, a gpu.Addr) {
	b.Helper()
	b.lost = true
	s, err := o.NewStream()
	b.must(err)
	b.note("launch", s.Launch(b.kernelOf(o, "culvert_counter"), one(), one(), a))
	b.note("synchronise", s.Synchronize())
	b.note("device", o.Synchronize())
}

// lostPlainHost has a kernel touch memory that the driver does not know.
func lostPlainHost(b *bench) {
	v, err := b.dev.Attribute(gpu.AttrPageableMemoryAccess)
	b.needs(err == nil && v == 0, "a GPU without PAGEABLE_MEMORY_ACCESS")
	o := b.other()
	plain := pages(b, 4096, rw)
	before := plain[0]
	b.lose(o, addr(plain))
	b.equal("unchanged", plain[0] == before, true)
}

// lostGarbage looks at every call after the context was lost.
func lostGarbage(b *bench) {
	o := b.other()
	a, err := o.Alloc(gpu.KindDevice, 4096, 0)
	b.must(err)
	s, err := o.NewStream()
	b.must(err)
	e, err := o.NewEvent()
	b.must(err)
	m, err := o.Load(kernels.PTX)
	b.must(err)
	b.lose(o, 0x10000)
	b.note("again", o.Synchronize())
	b.note("copy-in", o.CopyIn(a, make([]byte, 8)))
	b.note("copy-out", o.CopyOut(make([]byte, 8), a))
	b.note("fill", o.Fill(a, 0, 1, 8))
	_, err = o.Alloc(gpu.KindDevice, 4096, 0)
	b.note("alloc", err)
	_, err = o.Alloc(gpu.KindHost, 4096, 0)
	b.note("alloc-host", err)
	_, _, err = o.MemInfo()
	b.note("mem-info", err)
	_, err = o.Pointer(a)
	b.note("pointer", err)
	_, err = o.NewStream()
	b.note("new-stream", err)
	b.note("stream-fill", s.Fill(a, 0, 1, 8))
	_, err = s.Done()
	b.note("stream-done", err)
	b.note("event-synchronise", e.Synchronize())
	_, err = m.Func("culvert_counter")
	b.note("func", err)
	b.note("free", o.Free(a))
	b.note("stream-close", s.Close())
	b.note("event-close", e.Close())
	b.note("module-close", m.Close())
	b.fact("close", o.Close()) // has a stream and a module left to close
}

func lostFreed(b *bench) {
	o := b.other()
	a, err := o.Alloc(gpu.KindDevice, 4<<20, 0)
	b.must(err)
	b.must(o.Free(a))
	b.lose(o, a)
}

func lostMisaligned(b *bench) {
	o := b.other()
	a, err := o.Alloc(gpu.KindDevice, 4096, 0)
	b.must(err)
	b.lose(o, a+2)
}

// lostForeign has a kernel touch memory of another context.
func lostForeign(b *bench) {
	b.lose(b.other(), b.alloc(gpu.KindDevice, 4<<20))
}

// lostQueue looks at what becomes of work behind the kernel that fails.
func lostQueue(b *bench) {
	b.apart()
	b.lost = true
	h := b.alloc(gpu.KindHost, 8)
	v := gpu.HostBytes(h, 8)
	v[0] = 1
	f, s, e, g := b.kernel("culvert_counter"), b.stream(), b.event(), b.gate()
	g.hold(b, s) // until all is in the queue
	b.must(s.Launch(f, one(), one(), gpu.Addr(0x10000)))
	b.note("fill", s.Fill(h, 2, 1, 8))
	b.note("record", s.Record(e))
	g.open()
	b.note("synchronise", s.Synchronize())
	b.result("fill-done", v[0] == 2)
	b.note("event", e.Synchronize())
}

// lostAfter asks whether the rest of the process can go on: with the contexts
// there were, with a new one, and when all have been given up.
func lostAfter(b *bench) {
	lost := b.other()
	b.lose(lost, 0x10000)
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
