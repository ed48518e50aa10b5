package tcp

import (
	"testing"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/rdmatest"
)

func openTwo(t *testing.T, cfg Config) (a, b rdma.Device) {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The suite closes devices in cleanups that run before this one.
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if a, err = p.Open(""); err != nil {
		t.Fatal(err)
	}
	if b, err = p.Open(deviceName); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestConformance(t *testing.T) {
	rdmatest.Run(t, rdmatest.Backend{Open: func(t *testing.T) (a, b rdma.Device) { return openTwo(t, Config{}) }})
}
