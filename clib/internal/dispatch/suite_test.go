package dispatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/cufile/cufiletest"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// TestSuite runs cuFile's suite through the C API, which must give the results of
// the Go API, down to the bytes around the buffers.
func TestSuite(t *testing.T) {
	cufiletest.Run(t, openMachine, cufiletest.Options{
		Engine: func(t *testing.T, m *machine.Machine) cufiletest.Engine {
			e := engine{&program{t: t, core: New(nil), thread: new(softcuda.Thread)}}
			e.core.machine = m
			e.must("cuFileDriverOpen")
			t.Cleanup(func() { e.must("cuFileDriverClose_v2") })
			return e
		},
		Skip: func(c *cufiletest.Case) bool {
			return slices.ContainsFunc(otherCodes, func(s string) bool { return strings.Contains(c.Name, s) }) || testing.Short() && len(c.Name)%4 != 0
		},
	})
}

// otherCodes are cases of the suite for which C returns an errno of the system, as
// NVIDIA's library does, and Go a more specific code. The C program misuse.c has
// them all.
var otherCodes = []string{"/null/", "/negative-buffer-offset/", "/page-before-buffer/", "/past-allocation/", "/registered-negative/", "/wild/"}

func openMachine(t *testing.T) *machine.Machine {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 256 << 20, Scatter: true}, "test")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// An engine adapts the C functions to the suite.
type engine struct{ *program }

// A code is the result of a C function.
type code int

func (c code) Error() string { return fmt.Sprintf("code %d", int(c)) }

func (e engine) status(name string, args ...uint64) error {
	if v, _ := e.call(name, args...); v != 0 {
		return code(int32(v))
	}
	return nil
}

func (e engine) Register(fd int) (cufiletest.Handle, error) {
	descr, h := &[3]uint64{1, uint64(uint32(int32(fd))), 0}, new(handle.ID)
	if err := e.status("cuFileHandleRegister", out(h), out(descr)); err != nil {
		return nil, err
	}
	return libFile{e, *h}, nil
}

func (e engine) RegisterBuffer(base gpu.Addr, n uint64) error {
	return e.status("cuFileBufRegister", uint64(base), n, 0)
}

func (e engine) DeregisterBuffer(base gpu.Addr) error {
	return e.status("cuFileBufDeregister", uint64(base))
}

func (e engine) Code(err error) int {
	c, _ := errors.AsType[code](err)
	return int(c)
}

func (e engine) Close() error { return nil }

type libFile struct {
	e engine
	h handle.ID
}

func (f libFile) transfer(name string, base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	got, errno := f.e.call(name, uint64(f.h), uint64(cmem.Ptr(base)), n, uint64(off), uint64(buf))
	if got < 0 {
		return 0, code(errno)
	}
	return got, nil
}

func (f libFile) Read(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	return f.transfer("cuFileRead", base, n, off, buf)
}

func (f libFile) Write(base gpu.Addr, n uint64, off, buf int64) (int64, error) {
	return f.transfer("cuFileWrite", base, n, off, buf)
}

func (f libFile) Close() error {
	f.e.call("cuFileHandleDeregister", uint64(f.h))
	return nil
}
