package nvrm

import (
	"fmt"
	"os"

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

// IPCHandle returns the CUipcMemHandle of the allocation at a, which must be plain
// device memory.
func (d Device) IPCHandle(a gpu.Addr) ([64]byte, error) {
	op := fmt.Sprintf("cuIpcGetMemHandle(%v)", a)
	p, err := d.Pointer(a)
	if err != nil {
		return [64]byte{}, err
	}
	if p.Kind != gpu.KindDevice {
		return [64]byte{}, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("%v memory has no IPC handle", p.Kind))
	}
	b, handle, err := d.m.owned(d.m.cards[p.Device], p.Base)
	if err != nil {
		return [64]byte{}, err
	}
	return nvrm.IPCMemHandle{
		PID:     uint32(os.Getpid()),
		Size:    p.Size,
		Pages:   uint32(b.size / nvrm.IPCPageSize),
		Offset:  uint32(p.Base - b.base),
		GPUID:   b.card.id,
		HClient: d.m.cuda.handle,
		HMemory: handle,
	}.Bytes(), nil
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
