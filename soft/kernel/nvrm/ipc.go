package nvrm

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
)

// A Device is a software GPU with IPC handles, which name objects of the resource
// manager.
type Device struct {
	gpu.Device
	m *Manager
}

// Device adds IPC handles to a device of the manager's driver.
func (m *Manager) Device(d gpu.Device) Device { return Device{d, m} }

// An ipcDevice has handles that other processes can open; see soft/gpu.
type ipcDevice interface {
	IPCHandle(a gpu.Addr) ([64]byte, error)
}

// IPCHandle returns the CUipcMemHandle of the allocation at a, which must be plain
// device memory, with the object of the resource manager.
func (d Device) IPCHandle(a gpu.Addr) ([64]byte, error) {
	x, ok := d.Device.(ipcDevice)
	if !ok {
		return [64]byte{}, gpu.Fail(fmt.Sprintf("cuIpcGetMemHandle(%v)", a), gpu.ErrNotSupported, "not a device of this driver")
	}
	bytes, err := x.IPCHandle(a)
	if err != nil {
		return [64]byte{}, err
	}
	p, err := d.Pointer(a)
	if err != nil {
		return [64]byte{}, err
	}
	b, handle, err := d.m.owned(d.m.cards[p.Device], p.Base)
	if err != nil {
		return [64]byte{}, err
	}
	h := nvrm.ParseIPC(bytes)
	h.GPUID, h.HClient, h.HMemory = b.card.id, d.m.cuda.handle, handle
	return h.Bytes(), nil
}

// owned returns the block at an address from the objects of CUDA's client. It adds
// the block until it is freed.
func (m *Manager) owned(c *card, a gpu.Addr) (*memory, nvrm.Handle, error) {
	base, size, gen, err := c.gpu.Block(a)
	if err != nil {
		return nil, 0, err
	}
	// Generations are never reused, so they can be handles.
	h := cudaMemory + nvrm.Handle(gen)
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.cuda.objects[h]; o != nil {
		return o.mem, h, nil
	}
	b := &memory{card: c, base: base, size: size, gen: gen}
	o := &object{handle: h, parent: m.cuda.handle, card: c, mem: b}
	if _, err := c.gpu.OnFree(base, size, func() { m.disown(h) }); err != nil {
		return nil, 0, err
	}
	m.cuda.objects[h] = o
	return b, h, nil
}

func (m *Manager) disown(h nvrm.Handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.cuda.objects, h)
}
