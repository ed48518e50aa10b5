package cufiletest_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/cufile/cufiletest"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/machine"
)

// openVendor is NVIDIA's library as an engine.
func openVendor(t *testing.T, m *machine.Machine) cufiletest.Engine {
	t.Helper()
	path := *libcufile
	if path == "" {
		var err error
		if path, err = vendor.Find(); err != nil {
			t.Fatalf("%v: name it with -cufiletest.libcufile", err)
		}
	}
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	unbind, err := dev.Bind()
	if err != nil {
		t.Fatal(err)
	}
	defer unbind()
	lib, err := vendor.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return vendorEngine{lib}
}

type vendorEngine struct{ lib *vendor.Library }

func (v vendorEngine) Name() string {
	n, err := v.lib.Version()
	if err != nil {
		return "libcufile, " + err.Error()
	}
	return fmt.Sprintf("libcufile %d.%d", n/1000, n%1000/10)
}

func (v vendorEngine) Register(fd int) (cufiletest.Handle, error) {
	h, err := v.lib.Register(fd)
	if err != nil {
		return nil, err
	}
	return vendorHandle{h}, nil
}

func (v vendorEngine) RegisterBuffer(base gpu.Addr, n uint64) error {
	return v.lib.RegisterBuffer(base, n)
}

func (v vendorEngine) DeregisterBuffer(base gpu.Addr) error { return v.lib.DeregisterBuffer(base) }

func (v vendorEngine) Code(err error) int {
	if s, ok := errors.AsType[*vendor.Status](err); ok {
		return int(s.Code)
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return int(e)
	}
	return -1
}

func (v vendorEngine) Close() error { return v.lib.Close() }

type vendorHandle struct{ h *vendor.Handle }

func (h vendorHandle) Read(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	return h.h.Read(gpu.Span{Base: base, Off: uint64(buf), Len: n}, off)
}

func (h vendorHandle) Write(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	return h.h.Write(gpu.Span{Base: base, Off: uint64(buf), Len: n}, off)
}

func (h vendorHandle) Close() error {
	h.h.Close()
	return nil
}
