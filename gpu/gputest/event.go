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
	g.hold(b, first)
	b.must(first.Fill(a, 1, 4, 1))
	b.ok("record", first.Record(e))
	b.ok("wait-event", second.WaitEvent(e))
	b.must(second.Copy(a+4, a, 4))
	done, err := e.Done()
	b.ok("done", err)
	b.equal("not-yet", done, false)
	done, err = second.Done()
	b.must(err)
	b.equal("waiter-not-yet", done, false)
	g.open()
	b.ok("synchronise", e.Synchronize())
	done, err = e.Done()
	b.must(err)
	b.equal("happened", done, true)
	b.finished("waiter", second)
	b.holds("order", a, []byte{1, 0, 0, 0, 1, 0, 0, 0})
}

func eventUnrecorded(b *bench) {
	e, f, s := b.event(), b.event(), b.stream()
	done, err := e.Done()
	b.note("done", err)
	b.result("done.result", done)
	b.note("synchronise", e.Synchronize())
	b.note("wait-event", s.WaitEvent(e))
	b.finished("waiter", s)
	_, err = e.Since(f)
	b.note("since", err)
	b.must(s.Record(f))
	b.must(s.Synchronize())
	_, err = e.Since(f)
	b.note("since-recorded", err)
	_, err = f.Since(e)
	b.note("recorded-since", err)
}

// eventAgain shows that a wait is for the record before it, not for later ones.
func eventAgain(b *bench) {
	g := b.gate()
	s, held := b.stream(), b.stream()
	e := b.event()
	b.must(s.Record(e))
	b.must(s.Synchronize())
	waiter := b.stream()
	b.must(waiter.WaitEvent(e))
	g.hold(b, held)
	b.must(held.Record(e))
	b.finished("waits-for-the-first", waiter)
	done, err := e.Done()
	b.must(err)
	b.equal("second-not-yet", done, false)
	g.open()
	b.ok("synchronise", e.Synchronize())
}

func eventTime(b *bench) {
	const n = 32 << 20
	g := b.gate()
	a, s := b.alloc(gpu.KindDevice, n), b.stream()
	start, end := b.event(), b.event()
	b.must(s.Record(start))
	g.hold(b, s)
	b.must(s.Fill(a, 1, 1, n))
	b.must(s.Record(end))
	_, err := end.Since(start)
	b.want("not-ready", err, gpu.ErrNotReady)
	g.open()
	b.must(end.Synchronize())
	took, err := end.Since(start)
	b.ok("since", err)
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
	_, err := e.Done()
	b.want("done", err, gpu.ErrInvalidHandle)
	_, err = e.Since(f)
	b.want("since", err, gpu.ErrInvalidHandle)
	_, err = f.Since(e)
	b.want("since-closed", err, gpu.ErrInvalidHandle)
	b.want("synchronise", e.Synchronize(), gpu.ErrInvalidHandle)
	b.want("record", s.Record(e), gpu.ErrInvalidHandle)
	b.want("wait-event", s.WaitEvent(e), gpu.ErrInvalidHandle)
	b.want("twice", e.Close(), gpu.ErrInvalidHandle)
	b.must(s.Synchronize())
}

func eventContext(b *bench) {
	o := b.other()
	foreign, err := o.NewEvent()
	b.must(err)
	s := b.stream()
	b.note("record-foreign", s.Record(foreign))
	b.must(s.Synchronize())
	os, err := o.NewStream()
	b.must(err)
	e := b.event()
	b.must(s.Record(e))
	b.note("wait-foreign", os.WaitEvent(e))
	b.must(os.Synchronize())
}
