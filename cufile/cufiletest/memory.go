package cufiletest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// memory is an allocation of any kind.
type memory struct {
	dev  gpu.Device
	kind Kind
	base gpu.Addr
	n    uint64
	own  []byte // mapped by us
	gone bool   // freed
}

var driverKinds = map[Kind]gpu.Kind{
	Device: gpu.KindDevice, Virtual: gpu.KindVirtual, Managed: gpu.KindManaged, Pinned: gpu.KindHost,
}

func alloc(dev gpu.Device, m Mem) (*memory, error) {
	mem := &memory{dev: dev, kind: m.Kind, n: m.Size}
	if k, ok := driverKinds[m.Kind]; ok {
		var flags gpu.Flags
		if k == gpu.KindManaged {
			flags = gpu.ManagedGlobal
		}
		var err error
		mem.base, err = dev.Alloc(k, m.Size, flags)
		return mem, err
	}
	var err error
	mem.own, err = unix.Mmap(-1, 0, int(m.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	mem.base = gpu.HostAddr(mem.own)
	if m.Kind == Registered {
		if err := dev.Register(uintptr(mem.base), m.Size, 0); err != nil {
			return nil, errors.Join(err, unix.Munmap(mem.own))
		}
	}
	return mem, nil
}

func (m *memory) free() error {
	if m.gone {
		return nil
	}
	m.gone = true
	if m.own == nil {
		return m.dev.Free(m.base)
	}
	var err error
	if m.kind == Registered {
		err = m.dev.Unregister(uintptr(m.base))
	}
	return errors.Join(err, unix.Munmap(m.own))
}

// load copies the whole allocation out, store into it.
func (m *memory) load(dst []byte) error {
	if m.kind.OnDevice() {
		return m.dev.CopyOut(dst, m.base)
	}
	copy(dst, gpu.HostBytes(m.base, m.n))
	return nil
}

func (m *memory) store(src []byte) error {
	if m.kind.OnDevice() {
		return m.dev.CopyIn(m.base, src)
	}
	copy(gpu.HostBytes(m.base, m.n), src)
	return nil
}
