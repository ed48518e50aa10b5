package peermem_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	. "github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/pcie"
)

const (
	gpuPage = p2p.PageSize
	block   = 2 << 20
)

// A fixture is a machine with nvidia-peermem loaded.
type fixture struct {
	*machinetest.Machine
	core *Core
	nv   *NVIDIA
	task *p2p.Task
	fail func(string) bool
}

func newFixture(t machinetest.T, cfg soft.Config, callback bool) *fixture {
	t.Helper()
	w := new(fixture)
	fail := func(site string) bool { return w.fail != nil && w.fail(site) }
	cfg.Heap, cfg.Fail = true, fail
	w.Machine = machinetest.New(t, cfg)
	var err error
	w.core = New(Config{Points: &w.Points, Fail: fail})
	w.nv, err = NewNVIDIA(w.core, w.RM, NVIDIAConfig{Callback: callback, Fail: fail})
	w.Check(err)
	w.task = w.RM.Self.Task()
	return w
}

func (w *fixture) close() {
	w.T.Helper()
	w.nv.Close()
	w.Machine.Close()
}

// An mr is a memory region of an adapter: a key over registered memory.
type mr struct {
	u    *Umem
	dead bool
}

var errKey = errors.New("remote key error")

// write is an RDMA write that arrives at the adapter.
func (m *mr) write(w *fixture, fn *pcie.Function, data []byte) error {
	u := m.u
	w.Points.At("rdma", 0)
	if m.dead {
		return errKey
	}
	var sg []pcie.Range
	for _, s := range u.SG() {
		sg = append(sg, pcie.Range{Bus: s.Addr, Len: int(s.Len)})
	}
	e := pcie.Engine{Port: fn, Points: &w.Points}
	_, err := e.Write(sg, data)
	return err
}

func TestNVIDIARegistersGPUMemory(t *testing.T) {
	for _, callback := range []bool{false, true} {
		for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
			w := newFixture(t, soft.Config{IOMMU: mode, Scatter: true}, callback)
			va := w.Alloc(block)
			w.Check(w.GPU.Fill(gpu.Addr(va), 0, 1, block))
			u, err := w.core.Get(w.task, w.Far, va+5000, 200_000, true, Allow|Invalidate)
			w.Check(err)
			m := &mr{u: u}
			u.Activate(func() { m.dead = true })
			if u.Peer() != "nv_mem" {
				t.Errorf("registered by %q", u.Peer())
			}
			data := bytes.Repeat([]byte{0x5a}, 300_000)
			w.Check(m.write(w, w.Far, data))
			got := make([]byte, block)
			w.Check(w.GPU.CopyOut(got, gpu.Addr(va)))
			// The pages of 4 KiB around what was registered, and no others.
			if i, j := bytes.IndexByte(got, 0x5a), bytes.LastIndexByte(got, 0x5a); i != 4096 || j != 205_000&^4095+4095 {
				t.Errorf("bytes [%d, %d] were written", i, j)
			}
			u.Release(w.task, true)
			w.Free(va)
			w.close()
		}
	}
}

// Without support for invalidation it is nv_mem_nc that answers.
func TestNoCallbackClient(t *testing.T) {
	w := newFixture(t, soft.Config{}, true)
	defer w.close()
	va := w.Alloc(block)
	u, err := w.core.Get(w.task, w.Far, va, gpuPage, true, Allow)
	w.Check(err)
	if u.Peer() != "nv_mem_nc" || len(w.nv.Clients()) != 2 {
		t.Errorf("registered by %q", u.Peer())
	}
	w.Free(va) // the pin is persistent
	w.Check((&mr{u: u}).write(w, w.Far, []byte("still there")))
	u.Release(w.task, false)
}

// Invariant C: persistent mode: no invalidate ever; GPU memory stays valid for
// the NIC until deregistration.
func TestPersistentModeNeverInvalidates(t *testing.T) {
	w := newFixture(t, soft.Config{Memory: 4 << 20}, false)
	defer w.close()
	va := w.Alloc(block)
	u, err := w.core.Get(w.task, w.Near, va, block, true, Allow|Invalidate)
	w.Check(err)
	u.Activate(func() { t.Error("invalidated") })
	w.Free(va)
	other := w.Alloc(block)
	w.Check(w.GPU.Fill(gpu.Addr(other), 1, 1, block))
	w.Check((&mr{u: u}).write(w, w.Near, bytes.Repeat([]byte{9}, block)))
	got := make([]byte, block)
	w.Check(w.GPU.CopyOut(got, gpu.Addr(other)))
	if bytes.IndexByte(got, 9) >= 0 {
		t.Error("the NIC wrote into memory of somebody else")
	}
	if w.nv.Clients()[0].Stats().FreeCallbacks != 0 {
		t.Error("a callback was counted")
	}
	u.Release(w.task, true)
	w.Free(other)
}

// Invariant C: after invalidate returns the NIC cannot touch the memory, and
// using the key gives an error completion. A write is stopped with the memory in
// its hands when the owner frees.
func TestInvalidateStopsTheNIC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, soft.Config{Memory: 4 << 20}, true)
		va := w.Alloc(block)
		u, err := w.core.Get(w.task, w.Far, va, block, true, Allow|Invalidate)
		w.Check(err)
		m := &mr{u: u}
		u.Activate(func() { m.dead = true })
		gate := w.Points.Stop("engine.acquired")
		wrote := make(chan error)
		go func() { wrote <- m.write(w, w.Far, bytes.Repeat([]byte{9}, block)) }()
		<-gate.Arrived()
		freed := make(chan struct{})
		go func() {
			w.Free(va)
			close(freed)
		}()
		synctest.Wait()
		if !m.dead {
			t.Error("the key lives although the memory is going")
		}
		select {
		case <-freed:
			t.Error("the memory went under a write")
		default:
		}
		gate.Open()
		w.Check(<-wrote)
		<-freed
		next, other := w.Alloc(block), w.Alloc(block)
		w.Check(w.GPU.Fill(gpu.Addr(next), 1, 1, block))
		w.Check(w.GPU.Fill(gpu.Addr(other), 1, 1, block))
		if err := m.write(w, w.Far, []byte("late")); !errors.Is(err, errKey) {
			t.Errorf("the key after invalidation: %v", err)
		}
		m.dead = false // an adapter that ignores what it was told
		if err := m.write(w, w.Far, []byte("late")); err == nil {
			t.Error("the memory can be reached")
		}
		u.Release(w.task, true)
		w.Free(next)
		w.Free(other)
		w.close()
	})
}

// Invariant C: callback_task suppresses unmap only in the thread that runs the
// callback.
func TestOnlyTheCallbackThreadSkips(t *testing.T) {
	w := newFixture(t, soft.Config{IOMMU: pcie.Translating}, true)
	defer w.close()
	va := w.Alloc(block)
	x := w.nv.Acquire(w.task, va, gpuPage)
	if x == nil {
		t.Fatal("not mine")
	}
	w.Check(x.GetPages(w.task, true, false, NoTicket))
	_, err := x.DMAMap(w.task, w.Far)
	w.Check(err)
	callback := &p2p.Task{}
	RunCallback(x, callback)
	x.DMAUnmap(callback, w.Far, nil)
	x.PutPages(callback)
	if w.RM.Live() != 1 || w.Fabric().Usage().Mappings != 1 {
		t.Error("the callback's own thread unmapped")
	}
	x.DMAUnmap(w.task, w.Far, nil)
	x.PutPages(w.task)
	if w.RM.Live() != 0 || w.Fabric().Usage().Mappings != 0 {
		t.Error("another thread did not unmap while a callback ran")
	}
	w.Free(va)
}

// Failure injected at every allocation on the way, in the core, the client and
// the driver: the unwind frees exactly what was taken, and the next try works.
func TestFailureAtEveryAllocation(t *testing.T) {
	for _, callback := range []bool{false, true} {
		var sites []string
		for failing := 1; ; failing++ {
			w := newFixture(t, soft.Config{IOMMU: pcie.Translating}, callback)
			va := w.Alloc(block)
			calls := 0
			w.fail = func(site string) bool {
				if calls++; calls == failing {
					sites = append(sites, site)
					return true
				}
				return false
			}
			u, err := w.core.Get(w.task, w.Far, va, gpuPage, true, Allow|Invalidate)
			w.fail = nil
			if err == nil {
				u.Activate(func() {})
				u.Release(w.task, true)
			} else if !errors.Is(err, syscall.ENOMEM) && !errors.Is(err, syscall.EFAULT) { // EFAULT: acquire said no
				t.Errorf("allocation %d (%s): %v", failing, sites[len(sites)-1], err)
			}
			if live, u := w.RM.Live(), w.Fabric().Usage(); live != 0 || u.Mappings != 0 {
				t.Errorf("allocation %d: %d pins and %d mappings are left", failing, live, u.Mappings)
			}
			u, err = w.core.Get(w.task, w.Far, va, gpuPage, true, Allow|Invalidate)
			w.Check(err)
			u.Activate(func() {})
			u.Release(w.task, true)
			w.Free(va)
			w.close() // waits for ever if a use is left
			if calls < failing {
				break
			}
		}
		for _, want := range []string{"umem", "peer_umem", "context", "sg_alloc_table", "sg_copy", "dma_mapping", "dma_addresses", "pages"} {
			if !strings.Contains(strings.Join(sites, " "), want) {
				t.Errorf("callback %v: %s never failed in %v", callback, want, sites)
			}
		}
	}
}

// TestInterleavings lets registration, RDMA, invalidation, deregistration,
// re-registration and the owner's free meet in any order. Invalidate and
// deregistration of one region are serialised, and there is no deadlock when
// put_pages races with the free callback.
func TestInterleavings(t *testing.T) {
	n := uint64(10_000)
	if testing.Short() {
		n /= 20
	}
	synctest.Test(t, func(t *testing.T) {
		fixtures := []*fixture{
			newFixture(t, soft.Config{Memory: 8 << 20}, true),
			newFixture(t, soft.Config{Memory: 8 << 20, IOMMU: pcie.Translating}, true),
			newFixture(t, soft.Config{Memory: 8 << 20, Scatter: true}, false),
		}
		passed := map[string]int{}
		for seed := range n {
			rng := rand.New(rand.NewPCG(seed, 5))
			for _, at := range playRegion(t, fixtures[rng.IntN(len(fixtures))], rng, seed) {
				name, _, _ := strings.Cut(at, "/")
				passed[name]++
			}
		}
		for _, at := range []string{"peermem.found", "peermem.notified", "peermem.stopped", "p2p.put.woken", "engine.moved"} {
			if uint64(passed[at]) < n/100 {
				t.Errorf("%s was passed %d times in %d sequences", at, passed[at], n)
			}
		}
		for _, w := range fixtures {
			w.close()
		}
	})
}

func playRegion(t *testing.T, w *fixture, rng *rand.Rand, seed uint64) []string {
	const sentinel, part = 0xd5, 4 * gpuPage
	va := w.Alloc(block)
	size := uint64(1 + rng.IntN(3*gpuPage))
	m := &mr{}
	bad := ""
	invalidated := 0
	rereg, writable, before, life := rng.IntN(3) == 0, rng.IntN(2) == 0, rng.IntN(60), rng.IntN(10)
	region := func() {
		u, err := w.core.Get(w.task, w.Far, va, size, writable, Allow|Invalidate)
		if err != nil {
			if !errors.Is(err, syscall.EFAULT) && !errors.Is(err, syscall.EINVAL) {
				bad = err.Error()
			}
			return
		}
		if seed%7 == 0 { // the adapter fails before it is ready
			u.Release(w.task, false)
			return
		}
		notify := func() { m.dead = true; invalidated++ }
		m.u = u
		u.Activate(notify)
		for i := range life {
			w.Points.At("registered", uint64(i))
		}
		if rereg {
			m.u = nil
			if u, err = u.Rereg(w.task, true, va, size, writable, Allow|Invalidate); err != nil {
				return
			}
			m.u, m.dead, invalidated = u, false, 0
			u.Activate(notify)
		}
		m.dead = true // the key goes first, in deregistration too
		u.Release(w.task, true)
	}
	nic := func() {
		for i, writes := 0, 0; i < 40 && writes < 2; i++ {
			w.Points.At("nic", 0)
			if m.u == nil {
				continue
			}
			writes++
			err := m.write(w, w.Far, bytes.Repeat([]byte{7}, int(size)))
			if err != nil && !errors.Is(err, errKey) && !errors.Is(err, pcie.ErrAborted) && !errors.Is(err, pcie.ErrUnmapped) {
				bad = err.Error()
			}
		}
	}
	var successor gpu.Addr
	owner := func() {
		for i := range before {
			w.Points.At("owner", uint64(i))
		}
		w.Free(va)
		a, err := w.GPU.Alloc(gpu.KindDevice, block, 0)
		if err != nil {
			return
		}
		successor = a
		w.Check(w.GPU.Fill(a, sentinel, 1, part))
	}
	trace, err := w.Points.Run(seed, synctest.Wait, region, nic, owner)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if successor != 0 {
		got := make([]byte, part)
		w.Check(w.GPU.CopyOut(got, successor))
		if !bytes.Equal(got, bytes.Repeat([]byte{sentinel}, part)) {
			bad = "memory of somebody else was written"
		}
		w.Check(w.GPU.Free(successor))
	}
	if err := w.InUse(); bad != "" || err != nil || invalidated > 1 {
		t.Fatalf("seed %d: %q, %v, invalidated %d times\nafter %q", seed, bad, err, invalidated, trace)
	}
	return trace
}
