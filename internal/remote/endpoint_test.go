package remote

import (
	"bytes"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

// TestStagedEndpoint moves data into and out of GPU memory over TCP: the receipt says
// that it crossed host memory, and why.
func TestStagedEndpoint(t *testing.T) {
	s := serve(t, nil)
	c, _, _ := dial(t, s, 4096, nil)
	dev, err := softtest.New(t, soft.Config{}).GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 512 << 10
	a, err := dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	span := gpu.Span{Base: a, Len: n}
	from := &Endpoint{File: open(t, c, "d/data"), Client: c, Machine: route.SoftwareMachine}
	if err := from.Map(dev, span); err != nil {
		t.Fatal(err)
	}
	r, err := from.ReadAt(t.Context(), span, 0)
	size := int64(len(s.data))
	if err != nil || r.Bytes != size || r.Route != route.Host || r.Host.Bytes != size || r.Provider != "tcp" {
		t.Errorf("%v, %v", r, err)
	}
	if err := from.Plan().Require(route.RDMA); err == nil || r.Declined[route.RDMA] == nil {
		t.Errorf("route rdma was not declined: %v", r)
	}
	got := make([]byte, size)
	if err := dev.CopyOut(got, a); err != nil || !bytes.Equal(got, s.data) {
		t.Errorf("the GPU has other data, %v", err)
	}
	if err := from.Unmap(); err != nil {
		t.Error(err)
	}

	f, err := c.Create(t.Context(), "d/new", size)
	if err != nil {
		t.Fatal(err)
	}
	to := &Endpoint{File: f, Client: c}
	if err := to.Map(dev, span); err != nil {
		t.Fatal(err)
	}
	w, err := to.WriteAt(t.Context(), span.Slice(0, uint64(size)), 0)
	if err != nil || w.Bytes != size {
		t.Errorf("%v, %v", w, err)
	}
	if got, err := f.Sum(t.Context()); err != nil || got != crcOf(s.data) {
		t.Errorf("sum %#x, %v", got, err)
	}
	if err := errors.Join(to.Unmap(), dev.Free(a), dev.Close()); err != nil {
		t.Error(err)
	}
}
