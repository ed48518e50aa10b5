// Package softtest gives Go tests a software machine: code that uses GPUs, cuFile,
// GDRCopy or NVMe drives runs without hardware, and the test can break the machine.
//
//	m := softtest.New(t, soft.Config{GPUs: 2, Drives: []soft.Drive{{Size: 1 << 30}}})
//	s := softtest.Of(t, m)
//	s.P2P().Revoke()                          // end all pins with free callbacks
//	s.StoragePort().Unplug()                  // remove the drive under nvidia-fs
//	s.Drives()[0].FailBlock(1, 100, nvme.Read) // a bad block, of soft/nvme
//	s.Fabric().Poison(addr, n)                // DMA there is aborted
//
// Config.Without leaves kernel modules out, Config.Isolated puts devices where they
// cannot reach each other.
package softtest

import (
	"testing"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/fault"
)

// New builds a software machine for a test. When the test ends it closes the machine,
// and fails the test if device nodes, pins or DMA mappings are still in use.
func New(t testing.TB, cfg soft.Config) *machine.Machine {
	t.Helper()
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Of(t, m).InUse(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// Break breaks the machine on schedule, as package soft/fault's specifications say:
// "errno=EIO,call=read,nth=3". The faults end with the test. The result lists those that
// came about.
func Break(t testing.TB, m *machine.Machine, spec string) (fired func() []string) {
	t.Helper()
	specs, err := fault.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	i := fault.New(Of(t, m), specs)
	m.Faults = i
	t.Cleanup(func() {
		m.Faults = nil
		i.Stop()
	})
	return i.Fired
}

// Of returns the devices of a machine that New built.
func Of(t testing.TB, m *machine.Machine) *soft.Machine {
	t.Helper()
	s, ok := soft.Of(m.GPU)
	if !ok {
		t.Fatal("softtest: not a software machine")
	}
	return s
}
