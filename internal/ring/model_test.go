package ring

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// A modelMachine is the ring's own code with costs that were measured on an H200 machine,
// in the time of a synctest bubble: preads of cached pages that share the memory, and one
// copy engine. It does not know the time to wake a thread, nor what threads do to each
// other's caches: what it shows is whether the ring gives the copy engine work.
type modelMachine struct {
	nullGPU
	syscalls

	thread, memory float64 // bytes per second that one thread reads, and that all do
	link           float64 // bytes per second
	copying        time.Duration
	launching      time.Duration

	window   []byte  // GPU memory as the CPU sees it, for all callers; nil for none
	storing  float64 // bytes per second that all threads store there
	together float64 // bytes per second of stores and copies

	readers atomic.Int64
	stores  atomic.Int64 // threads that store
	mu      sync.Mutex
	free    time.Time     // when the copy engine has done all that is queued
	busy    time.Duration // of the copy engine
}

// newModel is a machine whose copies of 1, 2 and 4 MiB reach 0.82, 0.89 and 0.93 of
// 55.5 GB/s, as in docs/performance.md.
func newModel(t *testing.T, thread float64) *modelMachine {
	return &modelMachine{
		nullGPU: nullGPU{t: t}, thread: thread, memory: 75e9,
		link: 54.05e9, copying: 3700 * time.Nanosecond, launching: 9 * time.Microsecond,
		storing: 33.7e9, together: 55e9,
	}
}

// withWindow lets requests up to n bytes go through BAR1.
func (m *modelMachine) withWindow(n int64) *modelMachine {
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { unix.Munmap(mem) })
	m.window = mem
	return m
}

// open makes a ring as on a machine with 16 cores and PCIe 5 x16.
func (m *modelMachine) open() *Ring {
	cores := startCores
	startCores = 16
	defer func() { startCores = cores }()
	const slot = "sys/bus/pci/devices/0000:01:00.0/"
	r, err := newRing(m, Config{sys: m}, topology{fstest.MapFS{
		slot + "max_link_speed": {Data: []byte("32.0 GT/s PCIe\n")},
		slot + "max_link_width": {Data: []byte("16\n")},
	}})
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

func (m *modelMachine) Info() gpu.Info                 { return gpu.Info{Name: "model", PCI: "0000:01:00.0"} }
func (m *modelMachine) NewStream() (gpu.Stream, error) { return &modelStream{m: m}, nil }
func (m *modelMachine) NewEvent() (gpu.Event, error)   { return &modelEvent{}, nil }

// Register fails, so that the ring takes memory from Alloc and touches none.
func (m *modelMachine) Register(uintptr, uint64, gpu.Flags) error { return gpu.ErrNotSupported }

func (m *modelMachine) Alloc(_ gpu.Kind, n uint64, _ gpu.Flags) (gpu.Addr, error) {
	mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return 0, err
	}
	m.t.Cleanup(func() { unix.Munmap(mem) })
	return gpu.HostAddr(mem), nil
}

func (m *modelMachine) Pread(_ int, p []byte, _ int64) (int, error) {
	if at, from := gpu.HostAddr(p), gpu.HostAddr(m.window); at >= from && at < from+gpu.Addr(len(m.window)) {
		return m.store(len(p)), nil
	}
	rate := min(m.thread, m.memory/float64(m.readers.Add(1)))
	time.Sleep(time.Duration(float64(len(p)) / rate * 1e9))
	m.readers.Add(-1)
	return len(p), nil
}

// store reads n bytes into the window, bit by bit. While the copy engine has work, it waits
// for the link as long as the stores take it.
func (m *modelMachine) store(n int) int {
	const bit = 128 << 10
	memory, stores := float64(m.readers.Add(1)), float64(m.stores.Add(1))
	rate := min(m.thread, m.memory/memory, m.storing/stores)
	for left := n; left > 0; left -= bit {
		time.Sleep(time.Duration(float64(min(bit, left)) / rate * 1e9))
		m.mu.Lock()
		if m.free.After(time.Now()) {
			m.free = m.free.Add(time.Duration(float64(min(bit, left)) / m.together * 1e9))
		}
		m.mu.Unlock()
	}
	m.stores.Add(-1)
	m.readers.Add(-1)
	return n
}

func (m *modelMachine) Residency(_ int, _, n int64) (storage.Residency, error) {
	return storage.Residency{Pages: n / page, Cached: n / page}, nil
}

func (m *modelMachine) CopyMapped(*storage.Stream, []byte, int64) error { return errNotMapped }

type modelStream struct {
	gpu.Stream
	m    *modelMachine
	ends time.Time // of the last copy
}

func (s *modelStream) Copy(_, _ gpu.Addr, n uint64) error {
	time.Sleep(s.m.launching)
	took := s.m.copying + time.Duration(float64(n)/s.m.link*1e9)
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if now := time.Now(); s.m.free.Before(now) {
		s.m.free = now
	}
	s.m.free, s.m.busy = s.m.free.Add(took), s.m.busy+took
	s.ends = s.m.free
	return nil
}

func (s *modelStream) Record(e gpu.Event) error { e.(*modelEvent).at = s.ends; return nil }
func (s *modelStream) Synchronize() error       { time.Sleep(time.Until(s.ends)); return nil }
func (s *modelStream) Close() error             { return nil }

type modelEvent struct {
	gpu.Event
	at time.Time
}

// Done lets time pass for pipeline.wait, whose naps are system calls.
func (e *modelEvent) Done() (bool, error) {
	if !time.Now().Before(e.at) {
		return true, nil
	}
	if pc, _, _, ok := runtime.Caller(1); ok && strings.HasSuffix(runtime.FuncForPC(pc).Name(), ".wait") {
		time.Sleep(nap)
	}
	return false, nil
}

func (e *modelEvent) Synchronize() error { time.Sleep(time.Until(e.at)); return nil }
func (e *modelEvent) Close() error       { return nil }

// run reads total bytes in requests of n, and returns bytes per second and the share of
// the time in which the copy engine works.
func (m *modelMachine) run(r *Ring, callers int, n, total int64) (rate, busy float64) {
	var wg sync.WaitGroup
	left, began, before := atomic.Int64{}, time.Now(), m.busy
	left.Store(total)
	for range callers {
		wg.Go(func() {
			for left.Add(-n) >= 0 {
				reqs, res := []Request{{Buffered: 3, Direct: -1, Addr: 4096, Len: n}}, make([]Result, 1)
				if m.window != nil {
					reqs[0].Window = m.window[:n]
				}
				if err := r.Run(context.Background(), reqs, res); err != nil || res[0].N != n {
					m.t.Error(res[0].N, err)
					return
				}
				time.Sleep(3 * time.Microsecond) // the caller's own
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	return float64(total) / took, (m.busy - before).Seconds() / took
}

// TestCopyEngineHasWork checks that the ring keeps the copy engine of a model busy where
// requests are large enough for that. The machine that the costs are from reaches 0.93 of
// 55.5 GB/s for one request of 8 GiB, 0.91 for sixteen callers with 16 MiB and 0.79 with
// 1 MiB; the model 0.92, 0.91 and 0.82, over as many bytes.
func TestCopyEngineHasWork(t *testing.T) {
	for _, c := range []struct {
		callers int
		n       int64
		of      float64 // of the link, at least
	}{
		{1, 1 << 30, 0.88},
		{16, 16 << 20, 0.87},
		{8, 16 << 20, 0.85},
		{4, 16 << 20, 0.86},
		{8, 4 << 20, 0.82},
		{16, 1 << 20, 0.79},
		{2, 16 << 20, 0.66},
	} {
		for _, thread := range []float64{5e9, 6e9, 7e9} {
			t.Run(fmt.Sprintf("%d callers, %d MiB, %.0f GB/s", c.callers, c.n>>20, thread/1e9), func(t *testing.T) {
				// In which order goroutines run is chance, and makes a difference of 2 %.
				const tries = 3
				rate := 0.0
				for try := 0; try < tries && rate < c.of*55.5e9; try++ {
					synctest.Test(t, func(t *testing.T) {
						m := newModel(t, thread)
						r := m.open()
						defer r.Close()
						got, busy := m.run(r, c.callers, c.n, 1<<30)
						t.Logf("%.1f GB/s, %.2f of the link; the copy engine works %.0f %% of the time", got/1e9, got/55.5e9, 100*busy)
						rate = max(rate, got)
					})
				}
				if rate < c.of*55.5e9 {
					t.Errorf("%.2f of the link, want %.2f", rate/55.5e9, c.of)
				}
			})
		}
	}
}

// TestNothingToSettle checks that a ring whose pipelines exist is as fast from its first
// reads on as later: what it measures of a known link only corrects where it began.
func TestNothingToSettle(t *testing.T) {
	for _, c := range []struct {
		callers  int
		n, first int64
	}{{8, 1 << 20, 64 << 20}, {16, 1 << 20, 64 << 20}, {8, 4 << 20, 256 << 20}, {4, 16 << 20, 256 << 20}} {
		for _, thread := range []float64{4.5e9, 5e9, 6e9} {
			t.Run(fmt.Sprintf("%d callers, %d MiB, %.1f GB/s", c.callers, c.n>>20, thread/1e9), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newModel(t, thread)
					r := m.open()
					defer r.Close()
					first, _ := m.run(r, c.callers, c.n, c.first)
					m.run(r, c.callers, c.n, 1<<30)
					later, _ := m.run(r, c.callers, c.n, c.first)
					t.Logf("first %.1f GB/s, later %.1f", first/1e9, later/1e9)
					if first < 0.92*later {
						t.Errorf("the first %d MiB at %.1f GB/s, later ones at %.1f", c.first>>20, first/1e9, later/1e9)
					}
				})
			})
		}
	}
}

// TestModelWindows checks that no load is slower with windows, as far as chance allows, and
// that two callers with 4 MiB are faster. One such caller, which gains half on an H200, gains
// up to a tenth: the model wakes workers at once, and the last of its threads takes as long
// for a chunk of 1 MiB and more.
func TestModelWindows(t *testing.T) {
	for _, c := range []struct {
		callers int
		n       int64
		gain    float64
	}{{1, 4 << 20, 0.96}, {2, 4 << 20, 1.03}, {4, 4 << 20, 0.99}, {8, 4 << 20, 0.99}, {1, 16 << 20, 0.96}, {4, 16 << 20, 0.98}, {16, 16 << 20, 0.97}, {1, 1 << 30, 0.97}} {
		for _, thread := range []float64{5e9, 6e9, 7e9} {
			t.Run(fmt.Sprintf("%d callers, %d MiB, %.0f GB/s", c.callers, c.n>>20, thread/1e9), func(t *testing.T) {
				rate := func(window bool) (most float64) {
					for range 3 { // as in TestCopyEngineHasWork
						synctest.Test(t, func(t *testing.T) {
							m := newModel(t, thread)
							if window {
								m.withWindow(c.n)
							}
							r := m.open()
							defer r.Close()
							got, _ := m.run(r, c.callers, c.n, max(c.n, 256<<20))
							most = max(most, got)
						})
					}
					return most
				}
				without, with := rate(false), rate(true)
				t.Logf("%.1f GB/s, with windows %.1f: %.2f", without/1e9, with/1e9, with/without)
				if with < c.gain*without {
					t.Errorf("%.1f GB/s, with windows %.1f", without/1e9, with/1e9)
				}
			})
		}
	}
}
