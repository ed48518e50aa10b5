// Package machinetest builds software machines for the tests of emulated kernel
// modules.
package machinetest

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

// T is what a test, a benchmark and a property have in common.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

// A Machine is a software machine without modules, whose first GPU is open. Its
// methods end the test on an error.
type Machine struct {
	*soft.Machine
	T      T
	Points syncpoint.Points
	OS     *kernel.OS
	RM     *p2p.RM
	GPU    gpu.Device
	Near   *pcie.Function // below the GPU's switch
	Far    *pcie.Function // at another root port
}

// New builds a machine. GPU memory is 16 MiB unless cfg says otherwise.
func New(t T, cfg soft.Config) *Machine {
	t.Helper()
	m := &Machine{T: t}
	cfg.Memory = cmp.Or(cfg.Memory, 16<<20)
	cfg.Without, cfg.Points, cfg.Seed = soft.Modules(), &m.Points, 1
	var err error
	m.Machine, err = soft.New(cfg)
	m.Check(err)
	m.OS, m.RM = m.Kernel(), m.P2P()
	m.GPU, err = m.Machine.GPU.Open(0)
	m.Check(err)
	m.Near, err = m.Plug(0)
	m.Check(err)
	m.Far, err = m.Plug(-1)
	m.Check(err)
	return m
}

// Close fails the test if anything is in use, and closes the machine.
func (m *Machine) Close() {
	m.T.Helper()
	m.Check(m.InUse())
	m.Check(errors.Join(m.GPU.Close(), m.Machine.Close()))
}

// Check ends the test on an error.
func (m *Machine) Check(err error) {
	m.T.Helper()
	if err != nil {
		m.T.Fatal(err)
	}
}

// Alloc allocates n bytes of GPU memory.
func (m *Machine) Alloc(n uint64) uint64 {
	m.T.Helper()
	a, err := m.GPU.Alloc(gpu.KindDevice, n, 0)
	m.Check(err)
	return uint64(a)
}

// Free frees memory that Alloc returned.
func (m *Machine) Free(a uint64) {
	m.T.Helper()
	m.Check(m.GPU.Free(gpu.Addr(a)))
}

// Write sets GPU memory.
func (m *Machine) Write(a uint64, b []byte) {
	m.T.Helper()
	m.Check(m.GPU.CopyIn(gpu.Addr(a), b))
}

// Fill sets n bytes of GPU memory.
func (m *Machine) Fill(a uint64, n int, b byte) {
	m.T.Helper()
	m.Write(a, bytes.Repeat([]byte{b}, n))
}

// Read returns n bytes of GPU memory.
func (m *Machine) Read(a uint64, n int) []byte {
	m.T.Helper()
	p := make([]byte, n)
	m.Check(m.GPU.CopyOut(p, gpu.Addr(a)))
	return p
}
