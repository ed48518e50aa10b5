package gputest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

var streamCases = []testCase{
	{"stream-order", streamOrder},
	{"stream-independent", streamIndependent},
	{"stream-host-function", streamHostFunction},
	{"stream-done", streamDone},
	{"stream-close", streamClose},
	{"stream-many", streamMany},
	{"stream-synchronise-all", streamSynchroniseAll},
	{"stream-free", streamFree},
}

func streamOrder(b *bench) {
	const n = 1 << 20
	a, c, h := b.alloc(gpu.KindDevice, n), b.alloc(gpu.KindDevice, n), b.alloc(gpu.KindHost, n)
	s := b.stream()
	for i := range uint32(50) {
		b.must(s.Fill(a, i, 4, n/4))
		b.must(s.Copy(c, a, n))
		b.must(s.Copy(h, c, n))
		b.must(s.Fill(a, 0xff, 1, n))
	}
	b.finished("synchronise", s)
	v := gpu.HostBytes(h, n)
	b.equal("last", v[0] == 49 && v[n-4] == 49 && v[n-1] == 0, true)
}

// streamIndependent shows that a wait blocks only its own stream, and neither
// other streams nor synchronous calls.
func streamIndependent(b *bench) {
	g := b.gate()
	held, free := b.stream(), b.stream()
	a := b.alloc(gpu.KindDevice, 8)
	b.must(b.dev.Fill(a, 1, 4, 2))
	g.block(b, held)
	b.must(held.Fill(a, 2, 4, 1))
	b.must(free.Fill(a+4, 3, 4, 1))
	b.finished("other-stream", free)
	b.contains("synchronous-call", a, []byte{1, 0, 0, 0, 3, 0, 0, 0})
	g.open()
	b.finished("opened", held)
	b.contains("opened.read", a, []byte{2, 0, 0, 0, 3, 0, 0, 0})
}

func streamHostFunction(b *bench) {
	s := b.stream()
	a := b.alloc(gpu.KindHost, 4)
	v := gpu.HostBytes(a, 4)
	var mu sync.Mutex
	var got []string
	add := func(what string) func() {
		return func() {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(what, v[0]))
		}
	}
	b.must(s.Fill(a, 1, 1, 4))
	b.ok("do", s.Do(add("a")))
	b.must(s.Fill(a, 2, 1, 4))
	b.must(s.Do(add("b")))
	b.must(s.Fill(a, 3, 1, 4))
	b.finished("synchronise", s)
	mu.Lock()
	defer mu.Unlock()
	b.equal("order", fmt.Sprint(got), "[a1 b2]")
	b.want("nil", s.Do(nil), gpu.ErrInvalidValue)
}

func streamDone(b *bench) {
	g := b.gate()
	s := b.stream()
	done := got(s.Done()).ok(b, "empty")
	b.equal("empty.done", done, true)
	g.block(b, s)
	done = got(s.Done()).ok(b, "held")
	b.equal("held.done", done, false)
	g.open()
	b.finished("synchronise", s)
	done = got(s.Done()).ok(b, "after")
	b.equal("after.done", done, true)
}

func streamClose(b *bench) {
	const n = 1 << 20
	a := b.alloc(gpu.KindDevice, n)
	b.must(b.dev.Fill(a, 0, 1, n))
	s, e := b.stream(), b.event()
	for range 20 {
		b.must(s.Fill(a, 9, 1, n))
	}
	b.ok("with-work", s.Close())
	b.must(b.dev.Synchronize())
	b.contains("work-done", a+n-1, []byte{9})
	b.want("done", errOf(s.Done()), gpu.ErrInvalidHandle)
	b.want("twice", s.Close(), gpu.ErrInvalidHandle)
	b.want("copy", s.Copy(a, a+8, 8), gpu.ErrInvalidHandle)
	b.want("fill", s.Fill(a, 0, 1, 8), gpu.ErrInvalidHandle)
	b.want("do", s.Do(func() {}), gpu.ErrInvalidHandle)
	b.want("write", s.Write(a, 1, 4), gpu.ErrInvalidHandle)
	b.want("wait", s.Wait(a, 0, 4, gpu.CondGEQ), gpu.ErrInvalidHandle)
	b.want("record", s.Record(e), gpu.ErrInvalidHandle)
	b.want("wait-event", s.WaitEvent(e), gpu.ErrInvalidHandle)
	b.want("synchronise", s.Synchronize(), gpu.ErrInvalidHandle)
}

// streamMany uses many streams of one device from many goroutines.
func streamMany(b *bench) {
	const streams, n = 16, 65536
	a := b.alloc(gpu.KindDevice, streams*n)
	var wg sync.WaitGroup
	for i := range streams {
		wg.Go(func() {
			s, err := b.dev.NewStream()
			if err != nil {
				b.Error(err)
				return
			}
			for k := range 20 {
				if err := s.Fill(a+gpu.Addr(i*n), uint32(i+k), 4, n/4); err != nil {
					b.Error(err)
				}
			}
			if err := s.Synchronize(); err != nil {
				b.Error(err)
			}
			if err := s.Close(); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range streams {
		b.contains(fmt.Sprint(i), a+gpu.Addr((i+1)*n-4), []byte{byte(i + 19), 0, 0, 0})
	}
}

func streamSynchroniseAll(b *bench) {
	g := b.gate()
	a := b.alloc(gpu.KindDevice, 64)
	b.must(b.dev.Fill(a, 0, 1, 64))
	for i := range 8 {
		s := b.stream()
		g.block(b, s)
		b.must(s.Fill(a+gpu.Addr(8*i), 5, 1, 8))
	}
	b.equal("returns", finishes(func() {
		go g.open()
		b.note("synchronise", b.dev.Synchronize())
	}), true)
	b.contains("all-done", a, bytes.Repeat([]byte{5}, 64))
}

// streamFree notes which calls wait for work in flight. Programs free memory
// right after they launched the last kernel that uses it.
func streamFree(b *bench) {
	calls := map[string]func() error{
		"free-device":  freeing(b, gpu.KindDevice),
		"free-virtual": freeing(b, gpu.KindVirtual),
		"free-host":    freeing(b, gpu.KindHost),
		"free-managed": freeing(b, gpu.KindManaged),
	}
	m := pages(b, 4096, rw)
	b.must(b.dev.Register(host(m), 4096, 0))
	calls["unregister"] = func() error { return b.dev.Unregister(host(m)) }
	for name, call := range calls {
		g := b.gate()
		s := b.stream()
		g.block(b, s)
		returned := make(chan error, 1)
		go func() { returned <- call() }()
		select {
		case err := <-returned:
			b.must(err)
			b.result(name, "returns at once")
			g.open()
		case <-time.After(50 * time.Millisecond):
			b.result(name, "waits for streams")
			g.open()
			b.must(<-returned)
		}
		b.must(s.Synchronize())
		b.must(s.Close())
	}
}

func freeing(b *bench, k gpu.Kind) func() error {
	a := b.alloc(k, 4<<20)
	return func() error { return b.dev.Free(a) }
}
