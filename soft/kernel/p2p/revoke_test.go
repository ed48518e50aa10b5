package p2p

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/pcie"
)

// After a revoke no byte of the old pages changes. A DMA is stopped when it has
// the memory in its hands; the owner frees; the free must wait. When the DMA
// has written, and only then, the memory is gone, and any use of the old
// addresses is refused.
func TestRevokeWaitsForDMAInFlight(t *testing.T) {
	for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
		for _, at := range []string{"engine.acquired", "engine.moved", "pcie.release"} {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, setup{iommu: mode, memory: 4 << 20})
				va := r.alloc(2 << 20)
				r.fill(va, 2<<20, 0x11)
				table, calls := r.pin(va, 4*PageSize)
				m, err := r.rm.DMAMapPages(r.far, table)
				r.check(err)
				e := pcie.Engine{Port: r.far, Points: &r.points}
				gate := r.points.Stop(at)
				wrote := make(chan error)
				go func() {
					_, err := e.Write(ranges(m.Addresses), bytes.Repeat([]byte{0x22}, 4*PageSize))
					wrote <- err
				}()
				<-gate.Arrived()
				freed := make(chan struct{})
				go func() {
					r.free(va)
					close(freed)
				}()
				synctest.Wait()
				select {
				case <-freed:
					t.Fatalf("%v, %s: the memory was freed under a DMA", mode, at)
				default:
				}
				if *calls != 1 {
					t.Errorf("%v, %s: the client was called back %d times", mode, at, *calls)
				}
				if err := touch(r.far, m.Addresses); err == nil {
					t.Errorf("%v, %s: memory was acquired while it was removed", mode, at)
				}
				gate.Open()
				r.check(<-wrote)
				<-freed
				next := r.alloc(2 << 20)
				other := r.alloc(2 << 20) // one of the two has the old frames
				r.fill(next, 2<<20, 0x33)
				r.fill(other, 2<<20, 0x33)
				for _, addrs := range [][]uint64{m.Addresses, table.Pages} {
					for _, fn := range []*pcie.Function{r.near, r.far} {
						e.Port = fn
						if _, err := e.Write(ranges(addrs), bytes.Repeat([]byte{0x44}, 4*PageSize)); err == nil {
							t.Errorf("%v, %s: %s wrote to revoked pages", mode, at, fn.Name())
						}
					}
				}
				for _, a := range []uint64{next, other} {
					if !bytes.Equal(r.read(a, 2<<20), bytes.Repeat([]byte{0x33}, 2<<20)) {
						t.Errorf("%v, %s: bytes changed after the revoke", mode, at)
					}
					r.free(a)
				}
				r.close()
			})
		}
	}
}

// Put waits for DMA in flight as a revoke does, but not for DMA that another
// pin of the same pages allows.
func TestPutWaitsForItsOwnDMA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, setup{})
		va := r.alloc(2 << 20)
		first, _ := r.pin(va, 2*PageSize)
		second, _ := r.pin(va+PageSize, PageSize)
		l, err := r.near.Acquire(first.Pages[0], PageSize, pcie.Write)
		r.check(err)
		shared, err := r.near.Acquire(second.Pages[0], PageSize, pcie.Write)
		r.check(err)
		done := make(chan struct{})
		go func() {
			r.put(va, first)
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("put did not wait")
		default:
		}
		r.check(l.Release(0))
		synctest.Wait()
		select {
		case <-done: // although the shared page is still in use
		default:
			t.Fatal("put waits for a access of a page that stays pinned")
		}
		// A page can be pinned anew while it drains.
		go func() { r.put(va+PageSize, second) }()
		synctest.Wait()
		third, _ := r.pin(va+PageSize, PageSize)
		later, err := r.near.Acquire(third.Pages[0], PageSize, pcie.Write)
		r.check(err)
		if r.rm.BAR1Used(0) != PageSize || r.rm.Live() != 2 {
			t.Errorf("%d bytes in use by %d pins", r.rm.BAR1Used(0), r.rm.Live())
		}
		r.check(shared.Release(0))
		synctest.Wait() // the put of the second is over, the later access is in progress
		if r.rm.Live() != 1 {
			t.Error("put waits for a access that was made later, through another pin")
		}
		r.check(later.Release(0))
		r.put(va+PageSize, third)
		r.close()
	})
}

// Invariant B: put_pages after or during the callback returns 0 and frees
// nothing twice; it blocks until the callback is finished.
func TestPutDuringCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, setup{})
		va := r.alloc(2 << 20)
		inside, leave := make(chan struct{}), make(chan struct{})
		calls := 0
		table, err := r.rm.GetPages(r.task, va, PageSize, func(task *Task, table *PageTable) {
			calls++
			close(inside)
			<-leave
			if err := r.rm.PutPages(task, va, table); !errors.Is(err, syscall.EDEADLK) {
				t.Errorf("put inside the callback: %v", err)
			}
		})
		r.check(err)
		go func() { r.free(va) }()
		<-inside
		put := make(chan error, 1)
		go func() { put <- r.rm.PutPages(r.task, va, table) }()
		synctest.Wait()
		select {
		case err := <-put:
			t.Fatalf("put returned %v while the callback ran", err)
		default:
		}
		if _, err := r.rm.DMAMapPages(r.near, table); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("map during the callback: %v", err)
		}
		close(leave)
		if err := <-put; err != nil {
			t.Errorf("put during the callback: %v", err)
		}
		for range 2 {
			if err := r.rm.PutPages(r.task, va, table); err != nil {
				t.Errorf("put after the callback: %v", err)
			}
		}
		if calls != 1 {
			t.Errorf("called back %d times", calls)
		}
		synctest.Wait()
		r.close()
	})
}

// Invariant B: the callback fires at most once per pin, and never after
// put_pages returned. Here the free comes in the middle of put.
func TestFreeDuringPut(t *testing.T) {
	for _, at := range []string{"p2p.put.marked", "p2p.put.unmapped", "p2p.put.hidden"} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, setup{})
			va := r.alloc(2 << 20)
			table, calls := r.pin(va, PageSize)
			gate := r.points.Stop(at)
			put := make(chan struct{})
			go func() {
				r.put(va, table)
				close(put)
			}()
			<-gate.Arrived()
			freed := make(chan struct{})
			go func() {
				r.free(va)
				close(freed)
			}()
			synctest.Wait()
			gate.Open()
			<-put
			<-freed
			if *calls != 0 {
				t.Errorf("%s: called back %d times although put had begun", at, *calls)
			}
			r.close()
		})
	}
}

// The callback may come before get_pages has returned.
func TestCallbackBeforeGetReturns(t *testing.T) {
	for at, want := range map[string]error{"p2p.get.acquired": syscall.EINVAL, "p2p.get.pinned": syscall.EINVAL, "p2p.get.registered": nil, "p2p.get.done": nil} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, setup{})
			va := r.alloc(2 << 20)
			gate := r.points.Stop(at)
			calls := 0
			type result struct {
				table *PageTable
				err   error
			}
			got := make(chan result)
			go func() {
				table, err := r.rm.GetPages(r.task, va, PageSize, func(*Task, *PageTable) { calls++ })
				got <- result{table, err}
			}()
			<-gate.Arrived()
			go func() { r.free(va) }()
			synctest.Wait()
			gate.Open()
			g := <-got
			synctest.Wait()
			if !errors.Is(g.err, want) || (calls == 1) != (want == nil) {
				t.Errorf("%s: %v, called back %d times", at, g.err, calls)
			}
			if g.err == nil {
				r.put(va, g.table)
			}
			r.close()
		})
	}
}

// Addresses may mean other memory by the time the callback is registered.
func TestAddressReusedDuringGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, setup{memory: 4 << 20})
		va := r.alloc(2 << 20)
		gate := r.points.Stop("p2p.get.pinned")
		got := make(chan error)
		go func() {
			_, err := r.rm.GetPages(r.task, va, PageSize, func(*Task, *PageTable) { t.Error("called back") })
			got <- err
		}()
		<-gate.Arrived()
		r.free(va)
		var again gpu.Addr
		for uint64(again) != va { // the software GPU hands addresses out in turn
			a, err := r.dev.Alloc(gpu.KindDevice, 2<<20, 0)
			r.check(err)
			if again = a; uint64(a) != va {
				r.check(r.dev.Free(a))
			}
		}
		gate.Open()
		if err := <-got; !errors.Is(err, syscall.EINVAL) {
			t.Errorf("pinned other memory: %v", err)
		}
		r.check(r.dev.Free(again))
		r.close()
	})
}

// Revoke without free, as a reset: callbacks come, the memory stays.
func TestReset(t *testing.T) {
	r := newFixture(t, setup{})
	defer r.close()
	va := r.alloc(2 << 20)
	r.fill(va, 2<<20, 9)
	a, callsA := r.pin(va, PageSize)
	b, callsB := r.pin(va, 2*PageSize)
	p, err := r.rm.GetPagesPersistent(r.task, va, PageSize, 0)
	r.check(err)
	r.rm.Revoke()
	r.rm.Revoke()
	if *callsA != 1 || *callsB != 1 || r.rm.Live() != 1 {
		t.Errorf("called back %d and %d times, %d pins live", *callsA, *callsB, r.rm.Live())
	}
	r.put(va, a)
	r.put(va, b)
	r.check(r.rm.PutPagesPersistent(r.task, va, p, 0))
	c, callsC := r.pin(va, PageSize)
	if r.read(va, 1)[0] != 9 {
		t.Error("the memory has gone with the pins")
	}
	r.free(va)
	if *callsC != 1 {
		t.Errorf("a pin made after the reset was called back %d times", *callsC)
	}
	r.put(va, c)
}

// Invariant B: pins, BAR1, mappings and accesses have all ended after many rounds.
func TestNothingLeaks(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds /= 50
	}
	r := newFixture(t, setup{iommu: pcie.Translating})
	va := r.alloc(2 << 20)
	for i := range rounds {
		if i%1000 == 999 { // now and then the owner frees first
			table, calls := r.pin(va, PageSize)
			_, err := r.rm.DMAMapPages(r.far, table)
			r.check(err)
			r.free(va)
			r.put(va, table)
			if *calls != 1 {
				t.Fatal("not called back")
			}
			va = r.alloc(2 << 20)
		}
		table, _ := r.pin(va, 2*PageSize)
		m, err := r.rm.DMAMapPages(r.far, table)
		r.check(err)
		r.check(touch(r.far, m.Addresses))
		if i%2 == 0 {
			r.check(r.rm.DMAUnmapPages(r.far, table, m))
		}
		r.put(va, table)
	}
	if n := len(r.rm.cards[0].unused); n > 1 {
		t.Errorf("%d accesses on the shelf", n)
	}
	r.free(va)
	r.close()
}
