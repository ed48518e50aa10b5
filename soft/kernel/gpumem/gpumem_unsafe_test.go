package gpumem_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	client "github.com/culvert-io/culvert/gpumem"
	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gpumem"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	page  = 64 << 10
	block = 2 << 20
	rw    = unix.PROT_READ | unix.PROT_WRITE
)

// A fixture is a machine with the module loaded and a client.
type fixture struct {
	*machinetest.Machine
	m *gpumem.Module
	c *client.Client
}

func newFixture(t machinetest.T, cfg soft.Config) *fixture {
	t.Helper()
	w := &fixture{Machine: machinetest.New(t, cfg)}
	var err error
	w.m, err = gpumem.New(w.OS, gpumem.Config{RM: w.RM, Points: &w.Points})
	w.Check(err)
	w.c, err = client.Open(dev.With(&machine.Machine{}, dev.Of(w.OS)))
	w.Check(err)
	return w
}

// close wants everything back.
func (w *fixture) close() {
	w.T.Helper()
	w.Check(w.c.Close())
	if n := w.m.Locks(); n != 0 {
		w.T.Errorf("%d locks are left", n)
	}
	w.m.Close()
	w.Machine.Close()
}

// fault reports whether memory cannot be read.
func fault(b []byte) (f bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { f = recover() != nil }()
	_ = bytes.Clone(b[:1])
	return false
}

// Invariants E: LOCK then STATE give the same page_count; pages are distinct
// and 64 KiB aligned; data seen through mmap of page i equals GPU bytes
// [i·64 KiB, (i+1)·64 KiB) of the locked range.
func TestPagesAreTheMemory(t *testing.T) {
	for _, scatter := range []bool{false, true} {
		w := newFixture(t, soft.Config{Scatter: scatter})
		va := w.Alloc(4 << 20)
		content := make([]byte, 4<<20)
		for i := range content {
			content[i] = byte(i>>16) + byte(i)
		}
		w.Check(w.GPU.CopyIn(gpu.Addr(va), content))
		rapid.Check(t, func(t *rapid.T) {
			addr := rapid.Uint64Range(0, 4<<20-1).Draw(t, "offset")
			size := rapid.Uint64Range(1, 4<<20-addr).Draw(t, "size")
			l, err := w.c.Lock(gpu.Addr(va+addr), size)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Unlock() }()
			pages, err := l.Pages()
			if err != nil || len(pages) != l.Len() {
				t.Fatalf("%d pages, locked %d, %v", len(pages), l.Len(), err)
			}
			sorted := slices.Clone(pages)
			slices.Sort(sorted)
			if len(slices.Compact(sorted)) != len(pages) {
				t.Fatalf("pages %#x repeat", pages)
			}
			i := rapid.IntRange(0, len(pages)-1).Draw(t, "page")
			m, err := l.Map(i)
			if err != nil {
				t.Fatal(err)
			}
			at := uint64(l.Addr()) - va + uint64(i)*page
			if !bytes.Equal(m.Bytes(), content[at:at+page]) {
				t.Fatalf("page %d at %#x shows other bytes", i, pages[i])
			}
			b := byte(rapid.IntRange(0, 255).Draw(t, "byte"))
			m.Bytes()[7], content[at+7] = b, b
		})
		got := make([]byte, 4<<20)
		w.Check(w.GPU.CopyOut(got, gpu.Addr(va)))
		if !bytes.Equal(got, content) {
			t.Error("what was written through mappings is not what the GPU has")
		}
		w.Free(va)
		w.close()
	}
}

func raw(f kernel.File, req uintptr, words ...uint64) ([]uint64, error) {
	err := f.Ioctl(req, unsafe.Pointer(&words[0]))
	return words, err
}

// Invariants E: STATE with a wrong page_count changes nothing and is -EINVAL;
// UNLOCK succeeds exactly once per handle.
func TestWrongCountAndSecondUnlock(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	f := w.m.Open(w.RM.Self)
	l, err := raw(f, abi.IOCTL_GPUMEM_LOCK, 0, va, 4*page, 0)
	w.Check(err)
	for _, n := range []uint64{0, 3, 5, 1 << 62} {
		words := []uint64{l[0], n, 9, 9, 9, 9, 9, 9, 9}
		got, err := raw(f, abi.IOCTL_GPUMEM_STATE, slices.Clone(words)...)
		if !errors.Is(err, syscall.EINVAL) || !slices.Equal(got, words) {
			t.Errorf("count %d: %v, %v", n, err, got)
		}
	}
	_, err = raw(f, abi.IOCTL_GPUMEM_UNLOCK, l[0])
	w.Check(err)
	if _, err := raw(f, abi.IOCTL_GPUMEM_UNLOCK, l[0]); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("second unlock: %v", err)
	}
	w.Free(va)
}

// Invariants E: after the GPU free callback STATE must not report usable pages,
// UNLOCK still succeeds. What is mapped faults.
func TestAfterFreeCallback(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	l, err := w.c.Lock(gpu.Addr(va), 2*page)
	w.Check(err)
	pages, err := l.Pages()
	w.Check(err)
	m, err := l.Map(1)
	w.Check(err)
	w.Free(va)
	if _, err := l.Pages(); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("state: %v", err)
	}
	if !fault(m.Bytes()) {
		t.Error("the mapping can be read")
	}
	if _, err := w.m.Open(w.RM.Self).Mmap(int64(pages[0]), page, rw); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("mmap: %v", err)
	}
	text, err := fs.ReadFile(w.OS.FS(), abi.ProcPath)
	if err != nil || !strings.Contains(string(text), "Number of pages - 0\n") {
		t.Errorf("%q, %v", text, err)
	}
	w.Check(l.Unlock())
}

// Invariants E: mmap is refused for addresses outside locked pages.
func TestMmapOnlyLockedPages(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	f := w.m.Open(w.RM.Self)
	l, err := w.c.Lock(gpu.Addr(va+page), 2*page)
	w.Check(err)
	pages, err := l.Pages()
	w.Check(err)
	for name, tc := range map[string]struct {
		off int64
		n   int
		ok  bool
	}{
		"a page":             {int64(pages[0]), page, true},
		"both":               {int64(pages[0]), 2 * page, true},
		"inside":             {int64(pages[1]) + 4096, 5000, true},
		"across":             {int64(pages[0]) + 4096, page, true},
		"before":             {int64(pages[0]) - 4096, 4096, false},
		"begins before":      {int64(pages[0]) - 4096, 8192, false},
		"ends behind":        {int64(pages[1]), 2 * page, false},
		"odd":                {int64(pages[0]) + 8, 4096, false},
		"nothing":            {int64(pages[0]), 0, false},
		"negative":           {-4096, 4096, false},
		"somebody's memory":  {0x1000, 4096, false},
		"more than there is": {int64(pages[0]), 1 << 40, false},
	} {
		m, err := f.Mmap(tc.off, tc.n, rw)
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			w.Check(m.Unmap())
			w.Check(m.Unmap())
		}
	}
	w.Check(l.Unlock())
	if _, err := f.Mmap(int64(pages[0]), page, rw); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("after unlock: %v", err)
	}
	w.Free(va)
}

// A mapping keeps its pages locked beyond UNLOCK, and not beyond the owner's
// free.
func TestMappingKeepsTheLock(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	f := w.m.Open(w.RM.Self)
	l, err := raw(f, abi.IOCTL_GPUMEM_LOCK, 0, va, page, 0)
	w.Check(err)
	s, err := raw(f, abi.IOCTL_GPUMEM_STATE, l[0], 1, 0, 0, 0)
	w.Check(err)
	m, err := f.Mmap(int64(s[3]), page, rw)
	w.Check(err)
	_, err = raw(f, abi.IOCTL_GPUMEM_UNLOCK, l[0])
	w.Check(err)
	if fault(dev.Bytes(m)) || w.RM.Live() != 1 || w.m.Locks() != 0 {
		t.Errorf("after unlock: %d pins, %d locks", w.RM.Live(), w.m.Locks())
	}
	w.Free(va)
	if !fault(dev.Bytes(m)) {
		t.Error("after the free the mapping can be read")
	}
	w.Check(m.Unmap())
	if w.RM.Live() != 0 {
		t.Error("the pin is left")
	}
}

// Invariants E: process end releases all locks. Until then closing the node
// releases nothing, and no other process can use them.
func TestProcessEndReleasesLocks(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	p := &p2p.Process{PID: 2}
	w.Check(w.RM.Give(p, gpu.Addr(va)))
	f := w.m.Open(p)
	l, err := raw(f, abi.IOCTL_GPUMEM_LOCK, 0, va, 2*page, 0)
	w.Check(err)
	_, err = raw(f, abi.IOCTL_GPUMEM_LOCK, 0, va, page, 0)
	w.Check(err)
	f.Release()
	if w.m.Locks() != 2 {
		t.Errorf("closing the node left %d locks", w.m.Locks())
	}
	s, err := raw(w.m.Open(p), abi.IOCTL_GPUMEM_STATE, l[0], 2, 0, 0, 0, 0)
	w.Check(err)
	mine := f.By(w.RM.Self)
	if got, err := raw(mine, abi.IOCTL_GPUMEM_STATE, l[0], 2, 9, 9, 9, 9); err != nil || got[2] != 9 {
		t.Errorf("another process is told of pages: %#x, %v", got, err)
	}
	if _, err := raw(mine, abi.IOCTL_GPUMEM_UNLOCK, l[0]); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("another process unlocks: %v", err)
	}
	if _, err := mine.Mmap(int64(s[3]), page, rw); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("another process maps: %v", err)
	}
	p.Exit()
	if w.m.Locks() != 0 || w.RM.Live() != 0 {
		t.Errorf("after the end of the process %d locks and %d pins are left", w.m.Locks(), w.RM.Live())
	}
	w.Free(va)
}

func TestRefusedLocksLockNothing(t *testing.T) {
	w := newFixture(t, soft.Config{})
	defer w.close()
	va := w.Alloc(block)
	host, err := w.GPU.Alloc(gpu.KindHost, block, 0)
	w.Check(err)
	managed, err := w.GPU.Alloc(gpu.KindManaged, block, 0)
	w.Check(err)
	f := w.m.Open(w.RM.Self)
	for name, tc := range map[string]struct{ addr, size uint64 }{
		"nothing": {va, 0}, "address 0": {0, page}, "host memory": {uint64(host), page}, "managed memory": {uint64(managed), page},
		"no whole pages": {va, 100}, "past the end": {va, block + page}, "wraps": {va, -va}, "wraps to a page": {va + 8, 1<<64 - 8},
	} {
		words := []uint64{7, tc.addr, tc.size, 7}
		got, err := raw(f, abi.IOCTL_GPUMEM_LOCK, slices.Clone(words)...)
		if !errors.Is(err, syscall.EINVAL) || !slices.Equal(got, words) || w.RM.Live() != 0 || w.m.Locks() != 0 {
			t.Errorf("%s: %v, %d pins", name, err, w.RM.Live())
		}
	}
	// A lock whose handle does not reach the program is undone.
	ro, err := unix.Mmap(-1, 0, 4096, rw, unix.MAP_PRIVATE|unix.MAP_ANON)
	w.Check(err)
	defer func() { _ = unix.Munmap(ro) }()
	binary.NativeEndian.PutUint64(ro[8:], va)
	binary.NativeEndian.PutUint64(ro[16:], page)
	w.Check(unix.Mprotect(ro, unix.PROT_READ))
	if err := f.Ioctl(abi.IOCTL_GPUMEM_LOCK, unsafe.Pointer(&ro[0])); !errors.Is(err, syscall.EFAULT) || w.m.Locks() != 0 || w.RM.Live() != 0 {
		t.Errorf("untold lock: %v, %d locks", err, w.m.Locks())
	}
	w.Check(w.GPU.Free(host))
	w.Check(w.GPU.Free(managed))
	w.Free(va)
	if _, err := gpumem.New(w.OS, gpumem.Config{RM: w.RM}); err == nil {
		t.Error("the module was loaded twice")
	}
}

// Unloading unlocks what is left.
func TestUnload(t *testing.T) {
	w := newFixture(t, soft.Config{})
	va := w.Alloc(block)
	_, err := raw(w.m.Open(w.RM.Self), abi.IOCTL_GPUMEM_LOCK, 0, va, page, 0)
	w.Check(err)
	w.m.Close()
	if w.RM.Live() != 0 {
		t.Error("a pin is left")
	}
	w.Free(va)
	w.close()
}

func TestNothingLeaks(t *testing.T) {
	rounds := 100_000
	if testing.Short() {
		rounds /= 50
	}
	w := newFixture(t, soft.Config{})
	va := w.Alloc(block)
	for i := range rounds {
		l, err := w.c.Lock(gpu.Addr(va), 2*page)
		w.Check(err)
		if i%16 == 0 {
			_, err := l.Map(i % 2)
			w.Check(err)
		}
		if i%512 == 0 {
			w.Free(va)
			va = w.Alloc(block)
		}
		if i%128 == 0 {
			w.Check(w.c.Close())
			w.c, err = client.Open(dev.With(&machine.Machine{}, dev.Of(w.OS)))
			w.Check(err)
			continue
		}
		w.Check(l.Unlock())
	}
	w.Free(va)
	w.close()
}

// TestInterleavings lets locks, mappings, unlocks, the owner's free and the end
// of the process meet in any order.
func TestInterleavings(t *testing.T) {
	n := uint64(10_000)
	if testing.Short() {
		n /= 20
	}
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, soft.Config{})
		passed := map[string]int{}
		for seed := range n {
			for _, at := range playLocks(t, w, seed) {
				name, _, _ := strings.Cut(at, "/")
				passed[name]++
			}
		}
		for _, at := range []string{"gpumem.callback", "gpumem.put", "p2p.put.woken", "p2p.revoke.woken"} {
			if uint64(passed[at]) < n/100 {
				t.Errorf("%s was passed %d times in %d sequences", at, passed[at], n)
			}
		}
		w.close()
	})
}

func playLocks(t *testing.T, w *fixture, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 4))
	p := &p2p.Process{PID: 2}
	va := w.Alloc(block)
	w.Check(w.RM.Give(p, gpu.Addr(va)))
	f := w.m.Open(p)
	bad := ""
	user := func() {
		l, err := raw(f, abi.IOCTL_GPUMEM_LOCK, 0, va, page, 0)
		if err != nil {
			return
		}
		s, err := raw(f, abi.IOCTL_GPUMEM_STATE, l[0], 1, 0, 0, 0)
		if err != nil && !errors.Is(err, syscall.ENODEV) {
			bad = err.Error()
		}
		if s[3] != 0 {
			if m, err := f.Mmap(int64(s[3]), page, rw); err == nil {
				_ = fault(dev.Bytes(m))
				w.Points.At("mapped", l[0])
				if err := m.Unmap(); err != nil {
					bad = err.Error()
				}
			}
		}
		_, _ = raw(f, abi.IOCTL_GPUMEM_UNLOCK, l[0]) // EINVAL after the process's end
		if _, err := raw(f, abi.IOCTL_GPUMEM_UNLOCK, l[0]); !errors.Is(err, syscall.EINVAL) {
			bad = "unlocked twice"
		}
	}
	wait, before := rng.IntN(8), rng.IntN(4)
	actors := []func(){user, func() {
		for i := range before {
			w.Points.At("owner", uint64(i))
		}
		w.Free(va)
	}, func() {
		for i := range wait {
			w.Points.At("end", uint64(i))
		}
		p.Exit()
	}}
	if rng.IntN(2) == 0 {
		actors = append(actors, user)
	}
	trace, err := w.Points.Run(seed, synctest.Wait, actors...)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	p.Exit()
	if n, live, used := w.m.Locks(), w.RM.Live(), w.RM.BAR1Used(0); bad != "" || n != 0 || live != 0 || used != 0 {
		t.Fatalf("seed %d: %q; left over: %d locks, %d pins, %d bytes of BAR1\nafter %q", seed, bad, n, live, used, trace)
	}
	return trace
}

// Whatever a program sends, the emulated module answers with an errno and keeps its books.
func FuzzIoctl(f *testing.F) {
	w := newFixture(f, soft.Config{})
	va := w.Alloc(block)
	file := w.m.Open(w.RM.Self)
	f.Add(uint64(abi.IOCTL_GPUMEM_LOCK), uint64(0), va, uint64(page), uint64(0))
	f.Add(uint64(abi.IOCTL_GPUMEM_STATE), uint64(0xffff888000000040), uint64(1), uint64(0), uint64(0))
	f.Add(uint64(abi.IOCTL_GPUMEM_UNLOCK), uint64(0xffff888000000040), uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, req, a, b, c, d uint64) {
		words := make([]uint64, 8+block/page)
		copy(words, []uint64{a, b, c, d})
		err := file.Ioctl(uintptr(req), unsafe.Pointer(&words[0]))
		if _, ok := errors.AsType[syscall.Errno](err); err != nil && !ok {
			t.Errorf("%v is no errno", err)
		}
		if err == nil && req == abi.IOCTL_GPUMEM_LOCK {
			if m, err := file.Mmap(int64(d), int(c%block), rw); err == nil {
				if err := m.Unmap(); err != nil {
					t.Error(err)
				}
			}
		}
		if w.m.Locks() > 64 {
			w.m.Close()
		}
	})
}
