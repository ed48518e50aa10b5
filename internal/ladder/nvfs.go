package ladder

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// nvfsBlock is the unit in which nvidia-fs moves bytes.
const nvfsBlock = 4096

// An nvfsRoute has nvidia-fs, the kernel module under cuFile, move data between files
// and registered buffers: the drive accesses GPU memory, and no byte enters host
// memory. The unaligned ends of a request go through host memory; if the route is
// required, through a bounce buffer in GPU memory.
type nvfsRoute struct {
	basic
	dev       gpu.Device
	client    *nvfs.Client
	unaligned *hostRoute
	copies    copier    // for holes and the bounce buffer
	pool      sync.Pool // of *nvfsEnd
	// stack looks at the layers below a file; nil in tests of what is above.
	stack func(*storage.File) *route.Decline
	// real means a module that is not ours: what it says of host memory is only
	// reported.
	real bool

	files  sync.Map // from *storage.File to *nvfsFile
	bufs   table[*nvfsBuffer]
	bounce nvfsBounce
}

// An nvfsFile is a file and what transfers have shown about it.
type nvfsFile struct {
	*nvfs.File
	rejected atomic.Pointer[route.Decline]
}

// nvfsSwitch is the variable that enables the route on a real machine, and disables it
// on the software machine.
const nvfsSwitch = "CULVERT_NVFS"

// findNVFS returns the route, or why this machine does not have it.
func findNVFS(device gpu.Device, o dev.OS) (Route, *route.Decline) {
	if d := lookNVFS(o); d != nil {
		return nil, d
	}
	c, err := nvfs.Open(o)
	if err != nil {
		return nil, decline(route.NVFS, "node", err.Error(), "")
	}
	drivers, err := c.Drivers()
	switch {
	case err != nil:
		c.Close()
		return nil, decline(route.NVFS, "storage driver", err.Error(), "")
	case len(drivers) == 0:
		c.Close()
		return nil, decline(route.NVFS, "storage driver", "none has registered with nvidia-fs (/proc/driver/nvidia-fs/modules)",
			"load a storage driver that registers with nvidia-fs (NVIDIA's DOCA or MLNX_OFED)")
	}
	r := newNVFS(device, c, !dev.Simulated(o))
	r.stack = func(f *storage.File) *route.Decline { return declineStack(route.NVFS, o, f, drivers) }
	return r, nil
}

func newNVFS(device gpu.Device, c *nvfs.Client, real bool) *nvfsRoute {
	r := &nvfsRoute{dev: device, client: c, unaligned: newHost(device), copies: copier{dev: device}, real: real}
	r.pool.New = func() any { return new(nvfsEnd) }
	return r
}

var nvfsTexts = [numReasons]*route.Decline{
	hostMemory:   decline(route.NVFS, "memory", "not device memory", ""),
	unregistered: decline(route.NVFS, "buffer", "memory is not a registered buffer", "register the buffer"),
	unprepared:   decline(route.NVFS, "buffer", "nvidia-fs did not pin the buffer: under 4096 bytes, rejected, or too many", ""),
	phase:        decline(route.NVFS, "alignment", "GPU address and file offset differ modulo 4096", "use buffer offsets that are congruent to the file's"),
	noWholeBlock: decline(route.NVFS, "alignment", "request contains no whole 4096-byte block", ""),
	partialBlock: decline(route.NVFS, "alignment", "the write is not in whole 4096-byte blocks", "write whole blocks and truncate the file to its length, or do not require the route: unaligned ends then go through host memory"),
}

// Traits needs a file that supports direct I/O and, for unaligned ends, a descriptor
// that goes through the page cache.
func (r *nvfsRoute) Traits(src Source) (t Traits, d *route.Decline) {
	if d := needsBuffered(route.NVFS, src); d != nil {
		return t, d
	}
	if d := needsDirect(route.NVFS, src); d != nil {
		return t, d
	}
	f := src.File()
	if f.Facts.Direct.OffAlign > nvfsBlock {
		return t, decline(route.NVFS, "block size", fmt.Sprintf("%s has blocks of %d bytes, nvidia-fs of %d", src.Name(), f.Facts.Direct.OffAlign, nvfsBlock), "")
	}
	if r.stack != nil {
		if d := r.stack(f); d != nil {
			return t, d
		}
	}
	n, err := r.open(f)
	if err != nil {
		return t, decline(route.NVFS, "file", err.Error(), "")
	}
	return Traits{
		ID: route.NVFS, Scope: "whole blocks of 4 KiB, to and from registered buffers",
		Direct: true, Reads: true, Writes: true, Registered: true, Block: nvfsBlock, Bounce: true, texts: &nvfsTexts,
	}, n.rejected.Load()
}

// State looks up the shadow buffers of a buffer and what earlier transfers of the
// file have shown.
func (r *nvfsRoute) State(op *Op) (s State) {
	_, s.Prepared = r.bufs.get(op.Mem.Base)
	s.Misaligned = (uint64(op.Mem.Addr())-uint64(op.Off))%nvfsBlock != 0
	if f, ok := r.files.Load(op.file()); ok {
		s.Learned = f.(*nvfsFile).rejected.Load()
	}
	return s
}

// open opens a file for the module, once.
func (r *nvfsRoute) open(f *storage.File) (*nvfsFile, error) {
	if n, ok := r.files.Load(f); ok {
		return n.(*nvfsFile), nil
	}
	// One of the two descriptors was opened by Culvert: nothing else uses its offset.
	look := f.Buffered()
	if look == f.FD() {
		look = f.Direct()
	}
	n, err := nvfs.NewFile(f.Name, f.Direct(), look)
	if err != nil {
		return nil, err
	}
	got, known := r.files.LoadOrStore(f, &nvfsFile{File: n})
	if !known {
		f.OnClose(func() { r.files.Delete(f) })
	}
	return got.(*nvfsFile), nil
}

// Register binds a buffer to shadow buffers of the module.
func (r *nvfsRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() || r.bufs.len() >= nvfsMaxBuffers {
		return
	}
	if b := r.bind(span); b != nil {
		r.bufs.set(span.Base, b)
	}
}

// Deregister releases them.
func (r *nvfsRoute) Deregister(span gpu.Span) {
	if b, ok := r.bufs.remove(span.Base); ok {
		b.close()
	}
}

// Close closes the device node, which releases all shadow buffers.
func (r *nvfsRoute) Close() error {
	r.bufs.clear()
	return errors.Join(r.bounce.close(r.dev), r.client.Close(), r.copies.close(), r.unaligned.Close())
}
