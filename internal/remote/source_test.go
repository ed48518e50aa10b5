package remote

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

// A source without an adapter is read and written through host memory, at any offset;
// GPU memory cannot be mapped, and the error says why and names the provider.
func TestStagedSource(t *testing.T) {
	s := serve(t, nil)
	c, _, _ := dial(t, s, 4096, func(cfg *ClientConfig) { cfg.Chunk = 5000 })
	from := NewSource(t.Context(), open(t, c, "d/data"))
	size := len(s.data)
	for _, r := range []struct{ off, n, want int }{{0, size, size}, {4999, 20001, 20001}, {size - 3, 10, 3}, {size, 1, 0}} {
		got := make([]byte, r.n)
		n, err := from.ReadAt(got, int64(r.off))
		if n != r.want || (err == io.EOF) != (r.want < r.n) || !bytes.Equal(got[:n], s.data[r.off:r.off+n]) {
			t.Errorf("%d bytes at %d: %d, %v", r.n, r.off, n, err)
		}
	}
	if from.Changed() {
		t.Error("an unchanged file has changed")
	}
	dev, span := gpuBuffer(t, softtest.New(t, soft.Config{}).GPU)
	if _, err := from.Map(dev, span); err == nil || rdma.Errno(err) == 0 {
		t.Errorf("verbs over TCP have mapped GPU memory: %v", err)
	}
	var r route.Receipt
	if from.Annotate(&r); r.Provider != "tcp" || r.Retries != 0 {
		t.Errorf("receipt %v", &r)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "data"), s.data[1:], 0o644); err != nil {
		t.Fatal(err)
	}
	if !from.Changed() {
		t.Error("a file of another size has not changed")
	}
	wantStatus(t, "close", from.Close(t.Context()), Changed)

	f, err := c.Create(t.Context(), "d/new", int64(size))
	if err != nil {
		t.Fatal(err)
	}
	to := NewSource(t.Context(), f)
	zeros := make([]byte, 100)
	if _, err := to.ReadAt(zeros, int64(size)-100); err != nil || !bytes.Equal(zeros, make([]byte, 100)) {
		t.Errorf("a new upload is not empty, %v", err)
	}
	for _, r := range [][2]int{{7000, size}, {0, 7000}} {
		if n, err := to.WriteAt(s.data[r[0]:r[1]], int64(r[0])); n != r[1]-r[0] || err != nil {
			t.Errorf("write %v: %d, %v", r, n, err)
		}
	}
	back := make([]byte, 9000)
	if _, err := to.ReadAt(back, 5000); err != nil || !bytes.Equal(back, s.data[5000:14000]) {
		t.Errorf("an upload reads back otherwise, %v", err)
	}
	if got, err := to.Sum(t.Context(), int64(size)); err != nil || got != crcOf(s.data) {
		t.Errorf("sum %#x, %v", got, err)
	}
	if err := errors.Join(to.Commit(t.Context()), to.Close(t.Context())); err != nil {
		t.Error(err)
	}
	to.Abort()
	if _, err := to.ReadAt(back, 0); err == nil {
		t.Error("an aborted source was read")
	}
}

const windowSize = 512 << 10

// gpuBuffer is a GPU with a buffer.
func gpuBuffer(t *testing.T, d gpu.Driver) (gpu.Device, gpu.Span) {
	t.Helper()
	dev, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := dev.Alloc(gpu.KindDevice, windowSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(dev.Free(a), dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return dev, gpu.Span{Base: a, Len: windowSize}
}

// TestDirectSource lets adapters of the software machine write into GPU memory and read
// from it: the fabric counts no byte in host memory.
func TestDirectSource(t *testing.T) {
	m := softtest.New(t, soft.Config{})
	s := softtest.Of(t, m)
	provider := s.RDMA()
	near, err := provider.Open("")
	if err != nil {
		t.Fatal(err)
	}
	far, err := provider.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
	})
	stand := serve(t, func(cfg *ServerConfig) { cfg.Device = far })
	c, err := Dial(t.Context(), ClientConfig{Addr: stand.addr, Device: near})
	if err != nil {
		t.Fatal(err)
	}
	dev, span := gpuBuffer(t, m.GPU)
	from := NewSource(t.Context(), open(t, c, "d/data"))
	if got, err := from.Map(dev, span); err != nil || got != span {
		t.Fatal(got, err)
	}
	size := int64(len(stand.data))
	before := s.Fabric().HostTraffic().Written
	n, err := from.Move(t.Context(), route.Read, span.Slice(1000, uint64(size)-7), 7)
	if err != nil || n != size-7 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if written := s.Fabric().HostTraffic().Written - before; written != 0 {
		t.Errorf("%d bytes were written to host memory", written)
	}
	got := make([]byte, n)
	if err := dev.CopyOut(got, span.Addr()+1000); err != nil || !bytes.Equal(got, stand.data[7:]) {
		t.Errorf("the GPU has other data, %v", err)
	}
	ring, direct := route.Receipt{By: route.ByRoute{route.Ring: 1}}, route.Receipt{By: route.ByRoute{route.RDMA: 1}}
	from.Annotate(&ring)
	from.Annotate(&direct)
	if ring.Registration != "" || direct.Registration != "peer memory, built-in order" {
		t.Errorf("registration of the ring %q, of the adapter %q", ring.Registration, direct.Registration)
	}
	if _, err := from.Move(t.Context(), route.Read, gpu.Span{Base: span.Base, Off: span.Len - 10, Len: 11}, 0); err == nil {
		t.Error("memory behind the window was moved")
	}
	if err := errors.Join(from.Unmap(span), from.Unmap(span), from.Close(t.Context())); err != nil {
		t.Error(err)
	}

	f, err := c.Create(t.Context(), "d/new", n)
	if err != nil {
		t.Fatal(err)
	}
	to := NewSource(t.Context(), f)
	if _, err := to.Map(dev, span); err != nil {
		t.Fatal(err)
	}
	if k, err := to.Move(t.Context(), route.Write, span.Slice(1000, uint64(n)), 0); err != nil || k != n {
		t.Errorf("%d bytes, %v", k, err)
	}
	if got, err := to.Sum(t.Context(), n); err != nil || got != crcOf(stand.data[7:]) {
		t.Errorf("sum %#x, %v", got, err)
	}
	if err := errors.Join(to.Close(t.Context()), c.Close()); err != nil { // Close unmaps
		t.Error(err)
	}
}
