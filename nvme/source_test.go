package nvme_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/route"
)

// A source is read and written at any offset and length, as a file of the same bytes, and
// touches nothing outside of its range.
func TestSourceThroughHost(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	const from, size = 64 << 10, 512 << 10
	whole, err := nvme.NewSource(r.ns, nvme.SourceOptions{})
	r.check(err)
	model := make([]byte, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range model {
		model[i] = byte(rnd.Uint32())
	}
	if n, err := whole.WriteAt(model, 0); n != len(model) || err != nil {
		t.Fatal(n, err)
	}
	s, err := nvme.NewSource(r.ns, nvme.SourceOptions{Name: "part", Offset: from, Size: size})
	r.check(err)
	part := model[from : from+size]
	for i := range 200 {
		off := rnd.IntN(size)
		n := rnd.IntN(min(size-off, 9000)) + 1
		if i%2 == 0 {
			p := noise(n, uint64(i))
			if k, err := s.WriteAt(p, int64(off)); k != n || err != nil {
				t.Fatal(k, err)
			}
			copy(part[off:], p)
		}
		got := make([]byte, n+5000)
		k, err := s.ReadAt(got, int64(off))
		want := part[off:min(off+len(got), size)]
		if k != len(want) || !bytes.Equal(got[:k], want) || (err == io.EOF) != (k < len(got)) {
			t.Fatalf("%d bytes at %d: %d, %v", len(got), off, k, err)
		}
	}
	got := make([]byte, len(model))
	if _, err := whole.ReadAt(got, 0); err != nil || !bytes.Equal(got, model) {
		t.Errorf("a source has changed bytes outside of its range, %v", err)
	}
	if n, err := s.WriteAt(make([]byte, 20), size-10); n != 10 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("write over the end: %d, %v", n, err)
	}
	r.check(errors.Join(s.Sync(), s.Close(), whole.Close()))
}

func noise(n int, seed uint64) []byte {
	rnd, b := rand.New(rand.NewPCG(seed, 3)), make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// The drive moves whole blocks between the source and GPU memory, and no byte enters
// host memory. A buffer that begins inside a page is reached from the next one on.
func TestSourceMoves(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	dev, err := r.m.GPU.Open(0)
	r.check(err)
	s, err := nvme.NewSource(r.ns, nvme.SourceOptions{Offset: 4096, Size: 512 << 10})
	r.check(err)
	want := noise(256<<10, 1)
	if _, err := s.WriteAt(want, 1024); err != nil {
		t.Fatal(err)
	}
	base, err := dev.Alloc(gpu.KindDevice, 512<<10, 0)
	r.check(err)
	buf := gpu.Span{Base: base, Off: 4, Len: 512<<10 - 4}
	there, err := s.Map(dev, buf)
	r.check(err)
	if there.Addr() != (base+4+65535)&^65535 || uint64(there.Addr())+there.Len != (uint64(base)+512<<10)&^65535 {
		t.Errorf("mapped %v of %v", there, buf)
	}
	mem := there.Slice(4, uint64(len(want)))
	before := r.m.HostBytes()
	if n, err := s.Move(r.ctx, route.Read, mem, 1024); n != int64(len(want)) || err != nil {
		t.Fatal(n, err)
	}
	got := make([]byte, len(want))
	r.check(dev.CopyOut(got, mem.Addr()))
	if !bytes.Equal(got, want) {
		t.Error("GPU memory has other bytes")
	}
	want = noise(len(want), 2)
	r.check(dev.CopyIn(mem.Addr(), want))
	if n, err := s.Move(r.ctx, route.Write, mem, 2048); n != int64(len(want)) || err != nil {
		t.Fatal(n, err)
	}
	if n := r.m.HostBytes() - before; n != 0 {
		t.Errorf("%d bytes were in host memory", n)
	}
	if _, err := s.ReadAt(got, 2048); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the drive has other bytes, %v", err)
	}
	for what, m := range map[string]struct {
		mem gpu.Span
		off int64
	}{
		"part of a block":    {there.Slice(0, 100), 0},
		"inside a block":     {there.Slice(0, 512), 100},
		"before the mapping": {buf.Slice(0, 512), 0},
		"behind the mapping": {gpu.Span{Base: base, Off: there.Off + there.Len - 512, Len: 1024}, 0},
		"behind the end":     {there.Slice(0, 1024), 512<<10 - 512},
		"unknown memory":     {gpu.Span{Base: base + 1<<30, Len: 512}, 0},
	} {
		if n, err := s.Move(r.ctx, route.Read, m.mem, m.off); n != 0 || err == nil {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	cancelled, cancel := context.WithCancel(r.ctx)
	cancel()
	if _, err := s.Move(cancelled, route.Read, mem, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.Map(dev, gpu.Span{Base: base, Off: 4, Len: 64 << 10}); err == nil {
		t.Error("mapped a buffer without a whole page")
	}
	r.check(errors.Join(s.Unmap(buf), s.Unmap(buf), s.Close(), dev.Free(base), dev.Close()))
}

// Memory that is freed while it is mapped is no error when it is unmapped.
func TestSourceMemoryFreed(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	dev, err := r.m.GPU.Open(0)
	r.check(err)
	s, err := nvme.NewSource(r.ns, nvme.SourceOptions{})
	r.check(err)
	for _, end := range []func(gpu.Span) error{s.Unmap, func(gpu.Span) error { return s.Close() }} {
		base, err := dev.Alloc(gpu.KindDevice, 256<<10, 0)
		r.check(err)
		buf := gpu.Span{Base: base, Len: 256 << 10}
		there, err := s.Map(dev, buf)
		r.check(err)
		r.check(dev.Free(base))
		if _, err := s.Move(r.ctx, route.Read, there.Slice(0, 512), 0); err == nil {
			t.Error("moved bytes into freed memory")
		}
		r.check(end(buf))
	}
	r.check(dev.Close())
}

func TestSourceRange(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	for _, o := range []nvme.SourceOptions{
		{Offset: -512}, {Offset: 1<<20 + 512}, {Offset: 512, Size: 1 << 20}, {Size: -1}, {Offset: 100}, {Size: 100},
	} {
		if _, err := nvme.NewSource(r.ns, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	s, err := nvme.NewSource(r.ns, nvme.SourceOptions{Offset: 1 << 20})
	r.check(err)
	if n, err := s.Size(); n != 0 || err != nil {
		t.Error(n, err)
	}
	if _, err := s.ReadAt(nil, -1); err == nil {
		t.Error("read at a negative offset")
	}
	r.check(s.Close())
}
