package cufile_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// TestAddressInsideABuffer: an address inside a registered buffer is registered memory,
// as programs expect that register one large buffer; one that reaches out of it is not.
func TestAddressInsideABuffer(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	if f.usable()[route.Bar] == 0 {
		t.Skip("needs GPU memory that can be mapped")
	}
	const size = 1 << 20
	base := f.alloc(size)
	const registered = size / 2
	buf, err := f.drv.RegisterBuffer(base, registered)
	if err != nil {
		t.Fatal(err)
	}
	other := f.buffer(4096)
	defer other.Close()
	h := f.by(route.Bar) // which takes registered memory only
	defer h.Close()
	for _, mem := range []gpu.Span{
		{Base: base + 4096, Len: 4096},
		{Base: base + 1, Len: 8192},
		{Base: base + 4096, Off: 100, Len: 70_000},
		{Base: base + registered - 10, Len: 10},
	} {
		if err := f.dev.CopyIn(base, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		r, err := h.ReadAt(context.Background(), mem, 5000)
		if err != nil || r.Route != route.Bar || uint64(r.Bytes) != mem.Len {
			t.Fatalf("%v: %v, %v", mem, &r, err)
		}
		want := make([]byte, size)
		copy(want[mem.Addr()-base:], f.data[5000:5000+mem.Len])
		if !bytes.Equal(f.gpuBytes(gpu.Span{Base: base, Len: size}), want) {
			t.Errorf("%v: wrong bytes", mem)
		}
	}
	for _, mem := range []gpu.Span{
		{Base: base + registered - 10, Len: 11},
		{Base: base + registered, Len: 10},
		{Base: base + 4096, Off: registered - 4096, Len: 1},
		{Base: base + 4096, Off: ^uint64(0) - 4095, Len: 1}, // base, by an overflow
	} {
		if r, err := h.ReadAt(context.Background(), mem, 0); err == nil {
			t.Errorf("%v, which is not all registered: %v", mem, &r)
		}
	}
	ring := f.by(route.Ring) // which takes any memory
	defer ring.Close()
	if r, err := ring.ReadAt(context.Background(), gpu.Span{Base: base + registered - 10, Len: 4096}, 0); err != nil || r.Bytes != 4096 {
		t.Errorf("half of it registered: %v, %v", &r, err)
	}
	if err := buf.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := h.ReadAt(context.Background(), gpu.Span{Base: base + 4096, Len: 4096}, 0); err == nil {
		t.Errorf("after the buffer was deregistered: %v", &r)
	}
}

// TestAddressInsideFreedMemory: memory that was allocated where a buffer's memory was
// freed is not that buffer's.
func TestAddressInsideFreedMemory(t *testing.T) {
	m := softMachine(t, softConfig())
	gpus := &numberedDriver{Driver: m.GPU}
	gpus.id.Store(1)
	f := newFixtureOn(t, dev.With(&machine.Machine{Soft: true, GPU: gpus}, dev.Of(m)), 8192)
	const size = 2 << 20
	base := f.alloc(size)
	buf, err := f.drv.RegisterBuffer(base, size)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Close()
	gpus.id.Store(2) // it was freed, and the address handed out again
	h := f.by(route.Ring)
	defer h.Close()
	mem := gpu.Span{Base: base + 4096, Len: 4096}
	if r, err := h.ReadAt(context.Background(), mem, 0); err != nil || !bytes.Equal(f.gpuBytes(mem), f.data[:4096]) {
		t.Errorf("new memory at the address: %v, %v", &r, err)
	}
}
