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

// TestDirectEndpoint lets adapters of the software machine write into GPU memory: the
// receipt has no host bytes, and the fabric counted none.
func TestDirectEndpoint(t *testing.T) {
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
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 512 << 10
	a, err := dev.Alloc(gpu.KindDevice, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	span := gpu.Span{Base: a, Len: n}
	e := &Endpoint{File: open(t, c, "d/data"), Client: c}
	if err := e.Map(dev, span); err != nil {
		t.Fatal(err)
	}
	before := s.Fabric().HostTraffic().Written
	r, err := e.ReadAt(t.Context(), span, 0)
	size := int64(len(stand.data))
	if err != nil || r.Route != route.RDMA || r.Bytes != size || r.Host.Bytes != 0 || r.Provider != "soft" {
		t.Errorf("%v, %v", r, err)
	}
	if err := e.Plan().Require(route.RDMA); err != nil {
		t.Error(err)
	}
	if written := s.Fabric().HostTraffic().Written - before; written != 0 {
		t.Errorf("%d bytes were written to host memory", written)
	}
	got := make([]byte, size)
	if err := dev.CopyOut(got, a); err != nil || !bytes.Equal(got, stand.data) {
		t.Errorf("the GPU has other data, %v", err)
	}
	if err := errors.Join(e.Unmap(), c.Close(), dev.Free(a), dev.Close()); err != nil {
		t.Error(err)
	}
}
