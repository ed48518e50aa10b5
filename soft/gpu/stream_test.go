package gpu_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A hold keeps a stream at its place until it is opened.
type hold struct {
	ch   chan struct{}
	once sync.Once
}

func holdStream(t testing.TB, s gpu.Stream) *hold {
	t.Helper()
	h := &hold{ch: make(chan struct{})}
	must(t, s.Do(func() { <-h.ch }))
	t.Cleanup(h.open)
	return h
}

func (h *hold) open() { h.once.Do(func() { close(h.ch) }) }

func blocking(t testing.TB, x *softgpu.Device) *softgpu.Stream {
	t.Helper()
	s, err := x.NewStreamFlags(softgpu.StreamDefault)
	must(t, err)
	return s
}

func legacy(t testing.TB, x *softgpu.Device) *softgpu.Stream {
	t.Helper()
	s, err := x.DefaultStream()
	must(t, err)
	return s
}

// A journal notes in which order things were done.
type journal struct {
	mu   sync.Mutex
	done []string
}

func (j *journal) note(what string) func() {
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.done = append(j.done, what)
	}
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return fmt.Sprint(j.done)
}

func TestDefaultStreamWaitsForBlockingStreamsAndTheyForIt(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	a, b, null := blocking(t, x), blocking(t, x), legacy(t, x)
	var j journal
	h := holdStream(t, a)
	must(t, a.Do(j.note("a")))
	must(t, b.Do(j.note("b before")))
	must(t, b.Synchronize()) // blocking streams do not wait for each other
	must(t, null.Do(j.note("null")))
	must(t, b.Do(j.note("b after")))
	if done, err := b.Done(); done || err != nil {
		t.Errorf("work after the default stream's was done before: %v", err)
	}
	h.open()
	must(t, b.Synchronize())
	if got, want := j.String(), "[b before a null b after]"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// An idle stream that waits for no other takes the wait; the others take nothing.
func TestWaitIfIdle(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	word := alloc(t, x, gpu.KindHost, 8)
	clear(gpu.HostBytes(word, 8))
	free, waits := stream(t, x), blocking(t, x)
	for _, c := range []struct {
		name string
		s    gpu.Stream
		idle bool
	}{{"idle", free, true}, {"busy", free, false}, {"blocking", waits, false}} {
		idle, err := c.s.(*softgpu.Stream).WaitIfIdle(word, 1, 8, gpu.CondGEQ)
		if idle != c.idle || err != nil {
			t.Errorf("%s: idle %t, %v", c.name, idle, err)
		}
	}
	if done, err := waits.Done(); !done || err != nil {
		t.Errorf("a wait was enqueued in the blocking stream: %v", err)
	}
	other := stream(t, x)
	must(t, other.Write(word, 1, 8))
	must(t, free.Synchronize())
	must(t, free.Close())
	if _, err := free.(*softgpu.Stream).WaitIfIdle(word, 1, 8, gpu.CondGEQ); !errors.Is(err, gpu.ErrInvalidHandle) {
		t.Errorf("closed: %v", err)
	}
}

func TestSynchronousCallsWaitForBlockingStreamsAlone(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	a := alloc(t, x, gpu.KindDevice, 4)
	must(t, x.Fill(a, 1, 1, 4))
	free, held := stream(t, x), blocking(t, x)
	h1 := holdStream(t, free)
	must(t, x.Fill(a, 2, 1, 4)) // not held up by the independent stream
	h2 := holdStream(t, held)
	must(t, held.Fill(a, 3, 1, 4))
	got := make(chan []byte)
	go func() {
		b := make([]byte, 4)
		if err := x.CopyOut(b, a); err != nil {
			t.Error(err)
		}
		got <- b
	}()
	h2.open()
	if b := <-got; b[0] != 3 {
		t.Errorf("a synchronous copy read %d: it did not wait for the blocking stream", b[0])
	}
	h1.open()
}

func TestDefaultStreamCannotBeClosed(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	first, second := legacy(t, x), legacy(t, x)
	wantCode(t, "close", first.Close(), gpu.ErrInvalidHandle)
	if first != second {
		t.Error("a context has more than one default stream")
	}
	_, err := x.NewStreamFlags(2)
	wantCode(t, "unknown flags", err, gpu.ErrInvalidValue)
}

// TestLegacyStreamsNeverDeadlock mixes them from several goroutines.
func TestLegacyStreamsNeverDeadlock(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20), Backing: softgpu.Heap})
	var wg sync.WaitGroup
	for range 4 {
		s := blocking(t, x)
		wg.Go(func() {
			for range 200 {
				must(t, s.Do(func() {}))
				must(t, legacy(t, x).Do(func() {}))
			}
			must(t, s.Close())
		})
	}
	wg.Wait()
	must(t, x.Synchronize())
}

// TestCloseGivesUpWaits closes a device whose streams wait for ever.
func TestCloseGivesUpWaits(t *testing.T) {
	for range 20 { // the order in which streams give up is open
		closeGivesUpWaits(t)
	}
}

func closeGivesUpWaits(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	h := alloc(t, x, gpu.KindHost, 8)
	clear(gpu.HostBytes(h, 8))
	value, event, work := stream(t, x), stream(t, x), stream(t, x)
	var j journal
	must(t, value.Wait(h, 1, 4, gpu.CondEQ))
	must(t, value.Do(j.note("behind a wait")))
	e, err := x.NewEvent()
	must(t, err)
	must(t, value.Record(e))
	must(t, event.WaitEvent(e))
	must(t, event.Do(j.note("behind an event")))
	held := holdStream(t, work)
	must(t, work.Do(j.note("work")))
	held.open()
	must(t, x.Close())
	if got, want := j.String(), "[work]"; got != want {
		t.Errorf("done by Close: %s, want %s", got, want)
	}
	wantCode(t, "synchronise", value.Synchronize(), gpu.ErrContextDestroyed)
	wantCode(t, "event", e.Synchronize(), gpu.ErrContextDestroyed)
}

// TestKernelErrorTakesTheGPUDown loses one context of three, and a GPU of two.
func TestKernelErrorTakesTheGPUDown(t *testing.T) {
	d, x := device(t, softgpu.Config{Models: []softgpu.Model{small(softgpu.H200()), small(softgpu.H200())}})
	other, err := d.Open(1)
	must(t, err)
	neighbour, err := x.NewContext(0)
	must(t, err)
	a := alloc(t, x, gpu.KindDevice, 4096)
	waiting, theirs := stream(t, x), stream(t, neighbour)
	must(t, x.Fill(a, 0, 1, 8))
	must(t, waiting.Wait(a, 1, 4, gpu.CondEQ)) // given up with the context
	must(t, theirs.Wait(a, 1, 4, gpu.CondEQ))
	s := stream(t, x)
	h := holdStream(t, s)
	var j journal
	must(t, s.Launch(kernel(t, x, "culvert_counter"), one, one, a+1<<30))
	must(t, s.Do(j.note("work behind the kernel")))
	h.open()
	err = s.Synchronize()
	if got := j.String(); got != "[]" {
		t.Errorf("done after the context was lost: %s", got)
	}
	wantCode(t, "synchronise", err, gpu.ErrIllegalAddress)
	wantCode(t, "another stream", waiting.Synchronize(), gpu.ErrIllegalAddress)
	wantCode(t, "copy", x.CopyIn(a, []byte{1}), gpu.ErrIllegalAddress)
	wantCode(t, "free", x.Free(a), gpu.ErrIllegalAddress)
	if _, err := theirs.Done(); gpu.CodeOf(err) != gpu.ErrIllegalAddress {
		t.Fatalf("another context: %v", err) // and would wait for ever
	}
	wantCode(t, "another context", theirs.Synchronize(), gpu.ErrIllegalAddress)
	_, err = x.NewContext(0)
	wantCode(t, "new context", err, gpu.ErrIllegalAddress)
	twin, err := d.Open(0)
	must(t, err)
	wantCode(t, "another handle", twin.Synchronize(), gpu.ErrIllegalAddress)
	must(t, other.Synchronize())

	freed := false
	_, err = x.GPU().OnFree(a, 1, func() { freed = true })
	must(t, err)
	for _, o := range []gpu.Device{twin, neighbour, x} {
		must(t, o.Close())
	}
	if !freed {
		t.Error("Close did not free the memory of a lost context")
	}
	_, err = d.Open(0)
	wantCode(t, "with all contexts gone", err, gpu.ErrIllegalAddress)
	must(t, other.Synchronize())
}

// A kernel reaches all memory of its card, of whichever context, and no other's.
func TestKernelReachesMemoryOfItsOwnCardAlone(t *testing.T) {
	for _, kind := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual, gpu.KindHost, gpu.KindManaged} {
		d, x := device(t, softgpu.Config{Models: append(tiny(8<<20), tiny(8<<20)...)})
		a := alloc(t, x, kind, 4096)
		neighbour, err := x.NewContext(0)
		must(t, err)
		other, err := d.Open(1)
		must(t, err)
		s := stream(t, neighbour)
		must(t, s.Launch(kernel(t, neighbour, "culvert_counter"), one, one, a))
		must(t, s.Synchronize())
		want := gpu.Success
		if kind.OnDevice() {
			want = gpu.ErrIllegalAddress
		}
		s = stream(t, other)
		must(t, s.Launch(kernel(t, other, "culvert_counter"), one, one, a))
		wantCode(t, kind.String()+" from another card", s.Synchronize(), want)
	}
}

// TestFreeWaitsForTheKernelsBefore frees memory right after the launch that
// uses it, as programs do.
func TestFreeWaitsForTheKernelsBefore(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(16 << 20)})
	f := kernel(t, x, "culvert_counter")
	for _, k := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual, gpu.KindHost, gpu.KindManaged} {
		a, s := alloc(t, x, k, 4096), stream(t, x)
		h := holdStream(t, s)
		must(t, s.Launch(f, one, one, a))
		done := make(chan error, 1)
		go func() { done <- x.Free(a) }()
		h.open()
		must(t, <-done)
		must(t, s.Synchronize())
		must(t, s.Close())
	}
}

// TestStreamKeepsWhatItUses frees memory under queued work by way of another
// handle's Close, which nothing waits for.
func TestStreamKeepsWhatItUses(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	o, err := x.NewContext(0)
	must(t, err)
	theirs := alloc(t, o, gpu.KindDevice, 2<<20)
	mine := alloc(t, x, gpu.KindDevice, 2<<20)
	must(t, o.Fill(theirs, 7, 1, 2<<20))
	s := stream(t, x)
	h := holdStream(t, s)
	must(t, s.Copy(mine, theirs, 2<<20))
	must(t, o.Close())
	rest := alloc(t, x, gpu.KindDevice, 4<<20)
	must(t, x.Fill(rest, 8, 1, 4<<20))
	_, err = x.Alloc(gpu.KindDevice, 2<<20, 0)
	wantCode(t, "the frames that the stream uses", err, gpu.ErrOutOfMemory)
	h.open()
	must(t, s.Synchronize())
	if got := read(t, x, mine+2<<20-1, 1); got[0] != 7 {
		t.Errorf("the stream copied %d, not what was there when it was told to", got[0])
	}
	free(t, x, alloc(t, x, gpu.KindDevice, 2<<20))
}

func TestFuncWithoutGoHalfIsNamed(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	m, err := x.Load([]byte(".version 7.0\n.target sm_70\n.visible .entry frobnicate(.param .u64 p) { ret; }\n.visible .entry culvert_counter(.param .u32 p) { ret; }\n"))
	must(t, err)
	_, err = m.Func("frobnicate")
	wantCode(t, "no Go half", err, gpu.ErrNotFound)
	if s := fmt.Sprint(err); !containsAll(s, "frobnicate", "gpu/kernels") {
		t.Errorf("the error does not name the entry: %s", s)
	}
	_, err = m.Func("culvert_counter")
	wantCode(t, "other parameters", err, gpu.ErrNotFound)
}
