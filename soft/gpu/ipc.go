package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/soft/internal/cards"
)

// An IPC handle has the fields that CUDA's has. Bytes that CUDA leaves for itself have
// the name of the block, if processes share the memory.

// nameIn returns the name in a handle.
func nameIn(h nvrm.IPCMemHandle) cards.Name {
	return cards.Name{
		ID:   binary.NativeEndian.Uint64(h.Pad0[:]),
		Unit: binary.NativeEndian.Uint32(h.Pad1[:]),
		Card: binary.NativeEndian.Uint32(h.Pad2[:]),
		Owner: cards.Owner{
			Place:  binary.NativeEndian.Uint32(h.Pad2[4:]),
			Serial: binary.NativeEndian.Uint64(h.Pad3[:]),
		},
	}
}

func setName(h *nvrm.IPCMemHandle, n cards.Name) {
	binary.NativeEndian.PutUint64(h.Pad0[:], n.ID)
	binary.NativeEndian.PutUint32(h.Pad1[:], n.Unit)
	binary.NativeEndian.PutUint32(h.Pad2[:], n.Card)
	binary.NativeEndian.PutUint32(h.Pad2[4:], n.Owner.Place)
	binary.NativeEndian.PutUint64(h.Pad3[:], n.Owner.Serial)
}

// IPCHandle returns the CUipcMemHandle of the allocation at a, which must be plain device
// memory. Processes with the same [Config.Shared] can open it.
func (x *Device) IPCHandle(a gpu.Addr) ([64]byte, error) {
	op := fmt.Sprintf("cuIpcGetMemHandle(%v)", a)
	if err := x.check(op); err != nil {
		return [64]byte{}, err
	}
	d := x.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.regions.Find(a)
	switch {
	case r == nil:
		return [64]byte{}, gpu.Fail(op, gpu.ErrInvalidValue, "not an address of this driver")
	case r.kind != gpu.KindDevice:
		return [64]byte{}, gpu.Fail(op, gpu.ErrInvalidValue, fmt.Sprintf("%v memory has no IPC handle", r.kind))
	case r.opens > 0:
		return [64]byte{}, gpu.Fail(op, gpu.ErrInvalidValue, "the memory is of another process, whose handle is the only one")
	}
	h := nvrm.IPCMemHandle{
		PID:    uint32(os.Getpid()),
		Size:   r.size,
		Pages:  uint32(r.blk.size / nvrm.IPCPageSize),
		Offset: uint32(r.off),
	}
	if d.cards != nil {
		setName(&h, d.name(r.blk))
	}
	return h.Bytes(), nil
}

// An opening is what identifies memory that was opened by an IPC handle.
type opening struct {
	ctx *context
	object
	off uint32
}

// OpenIPC maps the memory of a handle that another process made. A context that has it
// open gets the same address again, and must close it as often.
func (x *Device) OpenIPC(handle [64]byte) (gpu.Addr, error) {
	h := nvrm.ParseIPC(handle)
	op := fmt.Sprintf("cuIpcOpenMemHandle(%d bytes of process %d)", h.Size, h.PID)
	if err := x.check(op); err != nil {
		return 0, err
	}
	d := x.ctx.drv
	d.mu.Lock()
	defer d.mu.Unlock()
	a, err := x.openIPC(h)
	return a, fail(op, err)
}

func (x *Device) openIPC(h nvrm.IPCMemHandle) (gpu.Addr, error) {
	d, n := x.ctx.drv, nameIn(h)
	switch {
	case d.cards == nil && int64(h.PID) == int64(os.Getpid()), d.cards != nil && n.Owner == d.cards.Owner():
		return 0, refuse(gpu.ErrInvalidContext, "the handle is of this process, which has the memory")
	case d.cards == nil:
		return 0, refuse(gpu.ErrInvalidHandle, "this process shares GPU memory with no other (fix: start both under one culvert run, or with the same CULVERT_SHARED)")
	}
	o := opening{x.ctx, object{n.Card, n.Unit}, h.Offset}
	if r := d.opened[o]; r != nil && d.known[o.object] == r.blk && r.size == h.Size {
		r.opens++
		return r.base, nil
	}
	b, err := d.join(n, true)
	switch {
	case errors.Is(err, cards.ErrStale):
		return 0, refuse(gpu.ErrInvalidHandle, "%v, by a process that has the same CULVERT_SHARED", err)
	case err != nil:
		return 0, refuse(gpu.ErrUnknown, "%v", err)
	}
	b.holds++
	defer d.drop(b)
	if b.card != x.ctx.card {
		return 0, refuse(gpu.ErrMapFailed, "the memory is of GPU %d, and GPU %d reaches no other", b.card.index, x.ctx.card.index)
	}
	off := uint64(h.Offset)
	if h.Size == 0 || off > b.size || h.Size > b.size-off || h.Pages != uint32(b.size/nvrm.IPCPageSize) {
		return 0, refuse(gpu.ErrInvalidHandle, "%d bytes at %d of memory of %d bytes", h.Size, off, b.size)
	}
	return x.placeOpened(b, o, h)
}

// placeOpened gives all of a block addresses, as hardware does, and makes a part of it
// known.
func (x *Device) placeOpened(b *block, o opening, h nvrm.IPCMemHandle) (gpu.Addr, error) {
	d := x.ctx.drv
	whole := &region{size: b.size, blk: b}
	if !b.card.address(whole) {
		return 0, refuse(gpu.ErrOutOfMemory, "no device addresses left")
	}
	r := &region{kind: gpu.KindDevice, size: h.Size, dev: x, blk: b, off: uint64(h.Offset), opens: 1, opening: o}
	r.base = whole.base + gpu.Addr(r.off)
	b.live++
	d.regions.Insert(r.base, r.size, r)
	d.opened[o] = r
	return r.base, nil
}

// CloseIPC undoes one OpenIPC. The last one, which it reports, removes the mapping, after
// the work that was enqueued before. The memory stays for the processes that use it.
func (x *Device) CloseIPC(a gpu.Addr) (last bool, err error) {
	op := fmt.Sprintf("cuIpcCloseMemHandle(%v)", a)
	if err := x.synchronize(op); err != nil {
		return false, err
	}
	d := x.ctx.drv
	d.remove(func() *region {
		r := d.regions.Find(a)
		if r == nil || r.base != a || r.opens == 0 || r.dev.ctx != x.ctx {
			err = refuse(gpu.ErrInvalidValue, "not an address that cuIpcOpenMemHandle returned here")
			return nil
		}
		if r.opens--; r.opens > 0 {
			return nil
		}
		last = true
		return r
	})
	return last, fail(op, err)
}
