package vfio

import (
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// The memory that a drive is given is the GPU's, in whole pages.
func TestBAR1(t *testing.T) {
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	base, err := d.Alloc(gpu.KindDevice, 2<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem, release, err := BAR1(m, d)(gpu.Span{Base: base, Off: 1 << 20, Len: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if len(mem) != 64<<10 || uintptr(gpu.HostAddr(mem))%4096 != 0 {
		t.Errorf("%d bytes at %v: vfio needs whole pages", len(mem), gpu.HostAddr(mem))
	}
	copy(mem, "by the drive")
	got := make([]byte, 12)
	if err := d.CopyOut(got, base+1<<20); err != nil || string(got) != "by the drive" {
		t.Errorf("the GPU has %q, %v", got, err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
