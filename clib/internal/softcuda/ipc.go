package softcuda

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// Memory of other processes, by IPC handles and by descriptors of virtual memory, and their events.

// ipcHandleSize is the size of a CUipcMemHandle and of a CUipcEventHandle.
const ipcHandleSize = 64

// IpcGetMemHandle is cuIpcGetMemHandle.
func (d *Driver) IpcGetMemHandle(c Call, out cmem.Ptr, a gpu.Addr) error {
	h, err := c.ctx.gpu.IPCHandle(a)
	return cmem.Put(out, h, err)
}

// IpcOpenMemHandle is cuIpcOpenMemHandle. LAZY_ENABLE_PEER_ACCESS, the only flag, has
// nothing to do: there are no peers.
func (d *Driver) IpcOpenMemHandle(c Call, out, h cmem.Ptr, flags uint32) error {
	if flags > 1 {
		return gpu.ErrInvalidValue
	}
	a, err := c.ctx.gpu.OpenIPC(cmem.Load[[ipcHandleSize]byte](h))
	if err != nil {
		return err
	}
	d.noteOpened(a, c.ctx)
	return cmem.Answer(out, a)
}

// noteOpened notes memory of another process, once, however often it is opened.
func (d *Driver) noteOpened(a gpu.Addr, ctx *context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allocs[a] == nil {
		d.allocs[a] = &alloc{id: d.id(), ctx: ctx, kind: gpu.KindDevice, opened: true}
	}
}

// IpcCloseMemHandle is cuIpcCloseMemHandle.
func (d *Driver) IpcCloseMemHandle(_ Call, a gpu.Addr) error {
	d.mu.Lock()
	al := d.allocs[a]
	d.mu.Unlock()
	if al == nil || !al.opened {
		return gpu.ErrInvalidValue
	}
	last, err := al.ctx.gpu.CloseIPC(a)
	if last {
		d.take(a, func(now *alloc) bool { return now == al })
	}
	return err
}

// IpcGetEventHandle is cuIpcGetEventHandle.
func (d *Driver) IpcGetEventHandle(c Call, out cmem.Ptr) error {
	if c.event.flags&eventInterprocess == 0 {
		return gpu.ErrInvalidHandle
	}
	h, err := c.event.gpu.(*softgpu.Event).IPCHandle()
	return cmem.Put(out, h, err)
}

// IpcOpenEventHandle is cuIpcOpenEventHandle. The event is as one without timing of this
// process, and has no handle for others.
func (d *Driver) IpcOpenEventHandle(c Call, out, h cmem.Ptr) error {
	g, err := c.ctx.gpu.OpenEvent(cmem.Load[[ipcHandleSize]byte](h))
	if err != nil {
		return err
	}
	return closeOn(add(d.events, out, &event{c.ctx, eventDisableTiming, g}), g)
}

// MemExportToShareableHandle is cuMemExportToShareableHandle, for descriptors. The memory
// must have been created for them.
func (d *Driver) MemExportToShareableHandle(_ Call, out cmem.Ptr, id handle.ID, kind int32, flags uint64) error {
	if kind != handlePosixFD || flags != 0 {
		return gpu.ErrInvalidValue
	}
	ph, err := find(d.virtual.physicals, id, gpu.ErrInvalidValue)
	if err != nil {
		return err
	}
	f, err := ph.mem.Export()
	if err != nil {
		return err
	}
	return putDescriptor(out, f)
}

// putDescriptor gives the program a descriptor of f, which the program closes, and closes f.
func putDescriptor(out cmem.Ptr, f *os.File) error {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return gpu.ErrOperatingSystem
	}
	return cmem.Answer(out, int32(fd))
}

// MemImportFromShareableHandle is cuMemImportFromShareableHandle, for descriptors. The
// program keeps its descriptor.
func (d *Driver) MemImportFromShareableHandle(_ Call, out, fd cmem.Ptr, kind int32) error {
	if kind != handlePosixFD || fd > 1<<31-1 {
		return gpu.ErrInvalidValue
	}
	mem, err := d.ready.Load().drv.Import(int(fd))
	if err != nil {
		return err
	}
	prop := allocationProp{
		Type: allocationPinned, HandleTypes: handlePosixFD,
		Location: memLocation{Type: locationDevice, ID: int32(mem.GPU().Index())},
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retain(&physical{mem: mem, prop: prop}, out)
}
