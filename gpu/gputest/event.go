package gputest

import (
	"github.com/culvert-io/culvert/gpu"
)

var eventCases = []testCase{
	{"event", eventOrder},
	{"event-unrecorded", eventUnrecorded},
	{"event-again", eventAgain},
	{"event-time", eventTime},
	{"event-close", eventClose},
	{"event-context", eventContext},
}

func eventOrder(b *bench) {
	g := b.gate()
	first, second := b.stream(), b.stream()
	e := b.event()
	a := b.alloc(gpu.KindDevice, 8)
	b.must(b.dev.Fill(a, 0, 4, 2))
	g.block(b, first)
	b.must(first.Fill(a, 1, 4, 1))
	b.ok("record", first.Record(e))
	b.ok("wait-event", second.WaitEvent(e))
	b.must(second.Copy(a+4, a, 4))
	done := got(e.Done()).ok(b, "done")
	b.equal("not-yet", done, false)
	b.equal("waiter-not-yet", b.done(second), false)
	g.open()
	b.ok("synchronise", e.Synchronize())
	b.equal("happened", b.done(e), true)
	b.finished("waiter", second)
	b.contains("order", a, []byte{1, 0, 0, 0, 1, 0, 0, 0})
}

func eventUnrecorded(b *bench) {
	e, f, s := b.event(), b.event(), b.stream()
	done, err := e.Done()
	b.note("done", err)
	b.result("done.result", done)
	b.note("synchronise", e.Synchronize())
	b.note("wait-event", s.WaitEvent(e))
	b.finished("waiter", s)
	b.note("since", errOf(e.Since(f)))
	b.must(s.Record(f))
	b.must(s.Synchronize())
	b.note("since-recorded", errOf(e.Since(f)))
	b.note("recorded-since", errOf(f.Since(e)))
}

// eventAgain shows that WaitEvent waits for the latest Record before it, not for
// later ones.
func eventAgain(b *bench) {
	g := b.gate()
	s, held := b.stream(), b.stream()
	e := b.event()
	b.must(s.Record(e))
	b.must(s.Synchronize())
	waiter := b.stream()
	b.must(waiter.WaitEvent(e))
	g.block(b, held)
	b.must(held.Record(e))
	b.finished("waits-for-the-first", waiter)
	b.equal("second-not-yet", b.done(e), false)
	g.open()
	b.ok("synchronise", e.Synchronize())
}

func eventTime(b *bench) {
	const n = 32 << 20
	g := b.gate()
	a, s := b.alloc(gpu.KindDevice, n), b.stream()
	start, end := b.event(), b.event()
	b.must(s.Record(start))
	g.block(b, s)
	b.must(s.Fill(a, 1, 1, n))
	b.must(s.Record(end))
	b.want("not-ready", errOf(end.Since(start)), gpu.ErrNotReady)
	g.open()
	b.must(end.Synchronize())
	took := got(end.Since(start)).ok(b, "since")
	b.equal("positive", took > 0, true)
	back, err := start.Since(end)
	b.note("backwards", err)
	b.result("backwards.negative", back < 0)
	same, err := end.Since(end)
	b.note("same", err)
	b.result("same.zero", same == 0)
}

func eventClose(b *bench) {
	e, f, s := b.event(), b.event(), b.stream()
	b.must(s.Record(e))
	b.must(s.Record(f))
	b.ok("close", e.Close())
	b.want("done", errOf(e.Done()), gpu.ErrInvalidHandle)
	b.want("since", errOf(e.Since(f)), gpu.ErrInvalidHandle)
	b.want("since-closed", errOf(f.Since(e)), gpu.ErrInvalidHandle)
	b.want("synchronise", e.Synchronize(), gpu.ErrInvalidHandle)
	b.want("record", s.Record(e), gpu.ErrInvalidHandle)
	b.want("wait-event", s.WaitEvent(e), gpu.ErrInvalidHandle)
	b.want("twice", e.Close(), gpu.ErrInvalidHandle)
	b.must(s.Synchronize())
}

func eventContext(b *bench) {
	o, s := b.on(b.other()), b.stream()
	foreign := o.event()
	b.note("record-foreign", s.Record(foreign))
	b.must(s.Synchronize())
	os, e := o.stream(), b.event()
	b.must(s.Record(e))
	b.note("wait-foreign", os.WaitEvent(e))
	b.must(os.Synchronize())
}
