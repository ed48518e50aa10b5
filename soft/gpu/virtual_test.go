package gpu_test

import (
	"bytes"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// Memory, addresses and mappings have lives of their own, and all of it comes
// back.
func TestVirtualMemoryInParts(t *testing.T) {
	_, x := device(t, softgpu.Config{Scatter: true})
	g, before := x.GPU(), freeMemory(t, x)
	p, err := g.Create(2*softgpu.Granularity, true)
	must(t, err)
	a, err := g.Reserve(4 * softgpu.Granularity)
	must(t, err)
	wantCode(t, "a copy to addresses without memory", x.CopyIn(a, make([]byte, 8)), gpu.ErrInvalidValue)
	must(t, x.Map(p, a))
	wantCode(t, "mapping over a mapping", x.Map(p, a+softgpu.Granularity), gpu.ErrInvalidValue)
	must(t, x.Map(p, a+2*softgpu.Granularity)) // a second time, elsewhere
	text, got := []byte("the same memory"), make([]byte, 15)
	must(t, x.CopyIn(a+softgpu.Granularity-7, text))
	must(t, x.CopyOut(got, a+3*softgpu.Granularity-7))
	if !bytes.Equal(got, text) {
		t.Errorf("by the other address it is %q", got)
	}
	must(t, x.Unmap(a))
	p.Release()
	must(t, x.CopyOut(got, a+3*softgpu.Granularity-7)) // it is still mapped there
	nobodyElse(t, g, a, 4*softgpu.Granularity)
	must(t, x.Unmap(a+2*softgpu.Granularity))
	wantCode(t, "unmapping twice", x.Unmap(a), gpu.ErrInvalidValue)
	g.Unreserve(a)
	if after := freeMemory(t, x); after != before {
		t.Errorf("%d bytes were free before, %d are now", before, after)
	}
}

// nobodyElse takes all addresses that are left, and finds none of [a, a+n) among
// them.
func nobodyElse(t *testing.T, g *softgpu.GPU, a gpu.Addr, n uint64) {
	t.Helper()
	type extent struct {
		at   gpu.Addr
		size uint64
	}
	var taken []extent
	for _, size := range []uint64{1 << 30, softgpu.Granularity} {
		for {
			at, err := g.Reserve(size)
			if err != nil {
				break
			}
			taken = append(taken, extent{at, size})
			if at < a+gpu.Addr(n) && a < at+gpu.Addr(size) {
				t.Errorf("%d addresses at %v were given out, of the reservation at %v", size, at, a)
			}
		}
	}
	for _, e := range taken {
		g.Unreserve(e.at)
	}
}

// Mappings that follow each other are one range to a copy, a fill and a stream;
// a gap is not.
func TestVirtualMemoryJoins(t *testing.T) {
	_, x := device(t, softgpu.Config{Scatter: true})
	g, before := x.GPU(), freeMemory(t, x)
	const n = softgpu.Granularity
	a, err := g.Reserve(4 * n)
	must(t, err)
	for _, at := range []gpu.Addr{a, a + n, a + 3*n} {
		p, err := g.Create(n, true)
		must(t, err)
		must(t, x.Map(p, at))
		p.Release()
	}
	want := bytes.Repeat([]byte("over the border "), n/8)
	must(t, x.CopyIn(a, want))
	if got := read(t, x, a, len(want)); !bytes.Equal(got, want) {
		t.Error("other bytes came back")
	}
	must(t, x.Fill(a+n-8, 0x41, 1, 16))
	s := stream(t, x)
	must(t, s.Copy(a+n-100, a+n-8, 16))
	must(t, s.Synchronize())
	if got := read(t, x, a+n-100, 16); !bytes.Equal(got, bytes.Repeat([]byte("A"), 16)) {
		t.Errorf("filled and copied over the border: %q", got)
	}
	wantCode(t, "a copy over a gap", x.CopyIn(a+n, make([]byte, 2*n+1)), gpu.ErrInvalidValue)
	must(t, s.Close())
	for _, at := range []gpu.Addr{a, a + n, a + 3*n} {
		must(t, x.Unmap(at))
	}
	g.Unreserve(a)
	if after := freeMemory(t, x); after != before {
		t.Errorf("%d bytes were free before, %d are now", before, after)
	}
}

func TestVirtualMemoryRefuses(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	g := x.GPU()
	for _, n := range []uint64{0, 1, softgpu.Granularity + 1, 1 << 50} {
		if _, err := g.Create(n, true); err == nil {
			t.Errorf("created %d bytes", n)
		}
		if _, err := g.Reserve(n); err == nil {
			t.Errorf("reserved %d bytes", n)
		}
	}
}

// TestCreateWithoutHandle: such memory has no descriptor and no IPC handle, so that nothing
// outside of CUDA can map it but a kernel module.
func TestCreateWithoutHandle(t *testing.T) {
	_, x := device(t, softgpu.Config{})
	g := x.GPU()
	p, err := g.Create(softgpu.Granularity, false)
	must(t, err)
	a, err := g.Reserve(softgpu.Granularity)
	must(t, err)
	must(t, x.Map(p, a))
	_, err = p.Export()
	wantCode(t, "a descriptor", err, gpu.ErrInvalidValue)
	_, err = x.Export(a, softgpu.Granularity, gpu.ExportPosixFD)
	wantCode(t, "a descriptor by address", err, gpu.ErrInvalidValue)
	_, err = x.IPCHandle(a)
	wantCode(t, "an IPC handle", err, gpu.ErrInvalidValue)
	at, err := x.Pointer(a)
	must(t, err)
	if at.Kind != gpu.KindDevice {
		t.Errorf("the pointer shows %v memory", at.Kind)
	}
	f, err := x.Export(a, softgpu.Granularity, gpu.ExportDMABuf)
	must(t, err)
	must(t, f.Close())
	must(t, x.Unmap(a))
	p.Release()
	g.Unreserve(a)
}
