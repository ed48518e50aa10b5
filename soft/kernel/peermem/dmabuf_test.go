package peermem_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft"
	. "github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/pcie"
)

// Invariants C: the descriptor may be closed after registration; the export
// keeps memory alive after free.
func TestDMABufKeepsMemory(t *testing.T) {
	for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
		w := newFixture(t, soft.Config{Memory: 4 << 20, IOMMU: mode, Scatter: true}, false)
		va := w.Alloc(block)
		w.Check(w.GPU.Fill(gpu.Addr(va), 1, 1, block))
		b, err := Export(w.RM, w.task, va+8192, 300<<10)
		w.Check(err)
		a, sg, err := RegisterDMABuf(b, w.Far, 4096+10, 100_000, 10)
		w.Check(err)
		near, _, err := RegisterDMABuf(b, w.Near, 0, b.Size(), 0)
		w.Check(err)
		w.Check(b.Close()) // the descriptor
		w.Free(va)
		other := w.Alloc(block)
		w.Check(w.GPU.Fill(gpu.Addr(other), 2, 1, block))
		var ranges []pcie.Range
		for _, s := range sg {
			ranges = append(ranges, pcie.Range{Bus: s.Addr, Len: int(s.Len)})
		}
		e := pcie.Engine{Port: w.Far}
		n, err := e.Write(ranges, bytes.Repeat([]byte{3}, 100_000))
		if n != 100_000 || err != nil {
			t.Errorf("%v: wrote %d bytes, %v", mode, n, err)
		}
		e.Port = w.Near
		whole := make([]byte, b.Size())
		ranges = nil
		for _, s := range near.SG() {
			ranges = append(ranges, pcie.Range{Bus: s.Addr, Len: int(s.Len)})
		}
		_, err = e.Read(ranges, whole)
		w.Check(err)
		want := bytes.Repeat([]byte{1}, int(b.Size()))
		copy(want[4096+10:], bytes.Repeat([]byte{3}, 100_000))
		if !bytes.Equal(whole, want) {
			t.Errorf("%v: the buffer holds other bytes", mode)
		}
		for _, x := range []*Attachment{a, near} {
			w.Check(x.Detach())
			w.Check(x.Detach())
		}
		if err := b.Close(); !errors.Is(err, syscall.EBADF) {
			t.Errorf("close after the end: %v", err)
		}
		if _, err := b.Attach(w.Far, 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("attach after the end: %v", err)
		}
		w.Free(other)
		w.close()
	}
}

// dma-buf asks the topology: what cannot be reached is refused, and mapped is
// what can be.
func TestDMABufAsksTheTopology(t *testing.T) {
	w := newFixture(t, soft.Config{IOMMU: pcie.Translating}, false)
	defer w.close()
	va := w.Alloc(block)
	b, err := Export(w.RM, w.task, va, block)
	w.Check(err)
	lonely, err := w.Fabric().AddHostBridge(pcie.ForwardNone).AddRootPort("root9")
	w.Check(err)
	fn, err := lonely.AddFunction("lonely")
	w.Check(err)
	if _, err := b.Attach(fn, 0); !errors.Is(err, abi.ENOTSUPP) {
		t.Errorf("unreachable: %v", err)
	}
	if _, err := b.Attach(nil, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("nobody: %v", err)
	}
	near, err := b.Attach(w.Near, 0)
	w.Check(err)
	if near.Translated() || near.SG()[0].Addr != b.Page() {
		t.Error("below one switch bus addresses are not used")
	}
	w.Check(near.Detach())
	w.Port(0).Slot().SetACS(true)
	near, err = b.Attach(w.Near, 0)
	w.Check(err)
	if !near.Translated() {
		t.Error("with ACS the mapping does not go through the host bridge")
	}
	w.Check(near.Detach())
	w.fail = func(site string) bool { return site == "dma_mapping" }
	if _, err := b.Attach(w.Near, 0); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("no memory: %v", err)
	}
	w.fail = nil
	w.Check(b.Close())
	w.Free(va)
}

// Invariant C: offset + length ≤ exported size, otherwise -EINVAL.
func TestDMABufRanges(t *testing.T) {
	w := newFixture(t, soft.Config{}, false)
	defer w.close()
	va := w.Alloc(block)
	for name, tc := range map[string]struct{ va, n uint64 }{
		"nothing": {va, 0}, "odd address": {va + 1, 4096}, "odd size": {va, 100}, "not there": {va + block, 4096}, "too long": {va, block + 4096}, "wraps": {va, 1<<64 - 4096},
	} {
		if _, err := Export(w.RM, w.task, tc.va, tc.n); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("export %s: %v", name, err)
		}
	}
	b, err := Export(w.RM, w.task, va+4096, 200<<10)
	w.Check(err)
	for name, tc := range map[string]struct{ off, n, iova uint64 }{
		"nothing": {0, 0, 0}, "too long": {4096, 200 << 10, 0}, "behind": {200<<10 + 1, 1, 1}, "wraps": {4096, 1<<64 - 1, 0}, "iova": {10, 100, 11},
	} {
		if _, _, err := RegisterDMABuf(b, w.Far, tc.off, tc.n, tc.iova); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("register %s: %v", name, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Uint64Range(0, 200<<10-1).Draw(t, "offset")
		n := rapid.Uint64Range(1, 200<<10-off).Draw(t, "length")
		a, sg, err := RegisterDMABuf(b, w.Far, off, n, off%4096)
		if err != nil {
			t.Fatal(err)
		}
		sum := uint64(0)
		for _, s := range sg {
			sum += s.Len
		}
		if sum != n {
			t.Fatalf("%d bytes are registered of %d", sum, n)
		}
		if err := a.Detach(); err != nil {
			t.Fatal(err)
		}
	})
	w.Check(b.Close())
	w.Free(va)
}

// Segments are cut at the importer's limit, and hold the same bytes.
func TestSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "pages")
		var pages []uint64
		for range n {
			pages = append(pages, rapid.Uint64Range(0, 8).Draw(t, "page")*gpuPage)
		}
		off := rapid.Uint64Range(0, gpuPage-1).Draw(t, "offset")
		size := rapid.Uint64Range(1, uint64(n)*gpuPage-off).Draw(t, "size")
		limit := rapid.SampledFrom([]uint64{0, 4096, gpuPage, 100_000}).Draw(t, "limit")
		sg := Segments(pages, off, size, limit)
		at := off
		for _, s := range sg {
			if limit != 0 && s.Len > limit || s.Len == 0 {
				t.Fatalf("a segment of %d bytes, limit %d", s.Len, limit)
			}
			for i := uint64(0); i < s.Len; i += 512 {
				if want := pages[(at+i)/gpuPage] + (at+i)%gpuPage; s.Addr+i != want {
					t.Fatalf("byte %d is at %#x, want %#x", at+i-off, s.Addr+i, want)
				}
			}
			at += s.Len
		}
		if at-off != size {
			t.Fatalf("%d bytes of %d", at-off, size)
		}
	})
}
