package route

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
)

// nvfsBlock is the unit in which nvidia-fs moves bytes.
const nvfsBlock = 4096

// An NVFSRoute has nvidia-fs, the kernel module under cuFile, move bytes between
// files and registered buffers: the drive writes GPU memory and reads it, and no
// byte touches host memory. What of a request is no whole block goes by way of the
// host.
type NVFSRoute struct {
	dev    gpu.Device
	client *nvfs.Client
	ragged *HostRoute
	pool   sync.Pool // of *nvfsEnd
	// real is a module that can do harm: it gets a WRITE of a file only after a READ
	// has shown that the storage driver under the file knows it, and what it says of
	// host memory is only reported.
	real bool

	files sync.Map   // from *storage.File to *nvfsFile
	mu    sync.Mutex // serialises changes of bufs
	bufs  atomic.Pointer[map[gpu.Addr]*nvfsBuffer]
	spare nvfsBounce
}

// An nvfsFile is a file and what was found out about it.
type nvfsFile struct {
	*nvfs.File
	refused atomic.Pointer[Decline]
}

// nvfsSwitch is the variable by which the route is asked for on a real machine, and
// turned off on the software one.
const nvfsSwitch = "CULVERT_NVFS"

// findNVFS returns the route, or why this machine has none.
func findNVFS(device gpu.Device, o dev.OS) (*NVFSRoute, *Decline) {
	if d := lookNVFS(o); d != nil {
		return nil, d
	}
	c, err := nvfs.Open(o)
	if err != nil {
		return nil, &Decline{NVFS, "node", err.Error(), ""}
	}
	drivers, err := c.Drivers()
	switch {
	case err != nil:
		c.Close()
		return nil, &Decline{NVFS, "storage driver", err.Error(), ""}
	case len(drivers) == 0:
		c.Close()
		return nil, &Decline{
			NVFS, "storage driver", "none has registered with nvidia-fs (/proc/driver/nvidia-fs/modules)",
			"load a storage driver that registers with nvidia-fs (NVIDIA's DOCA or MLNX_OFED)",
		}
	}
	return newNVFS(device, c, !dev.Simulated(o)), nil
}

func newNVFS(device gpu.Device, c *nvfs.Client, real bool) *NVFSRoute {
	r := &NVFSRoute{dev: device, client: c, ragged: NewHost(device), real: real}
	r.pool.New = func() any { return new(nvfsEnd) }
	r.bufs.Store(&map[gpu.Addr]*nvfsBuffer{})
	return r
}

// lookNVFS says what keeps the route from being tried. Raw requests to a module
// with known hard failures are a choice, but on the software machine, where they
// can harm nobody.
func lookNVFS(o dev.OS) *Decline {
	const version = "proc/driver/nvidia-fs/version"
	asked := os.Getenv(nvfsSwitch)
	soft := dev.Simulated(o)
	if _, err := fs.Stat(o.FS(), version); err != nil {
		if d := onWSL(NVFS, o); d != nil {
			return d
		}
		if soft {
			return &Decline{NVFS, "kernel module", "a software GPU with the memory of a PCI device has no nvidia-fs", "leave peer= out of CULVERT_SOFT"}
		}
		return &Decline{NVFS, "kernel module", "nvidia-fs is not loaded: no /" + version, "install nvidia-fs and run: modprobe nvidia-fs"}
	}
	switch {
	case soft && asked == "0":
		return &Decline{NVFS, "consent", nvfsSwitch + "=0 turns the route off", "unset " + nvfsSwitch}
	case !soft && asked != "1":
		return &Decline{
			NVFS, "consent", "nvidia-fs is loaded, but some of its failures take the kernel down, so that it must be asked for",
			"set " + nvfsSwitch + "=1; NVIDIA's libcufile (route vendor) needs no consent",
		}
	}
	return nil
}

// ID is NVFS.
func (r *NVFSRoute) ID() ID { return NVFS }

// Scope says which requests the route is for.
func (r *NVFSRoute) Scope() string {
	return "whole blocks of 4 KiB, to and from registered buffers"
}

// Probe wants a file that takes direct I/O, and for ragged ends a descriptor that
// goes through the page cache.
func (r *NVFSRoute) Probe(f *storage.File) Verdict {
	switch {
	case f.Direct() < 0:
		return &Decline{NVFS, "O_DIRECT", f.Name + ": " + f.Facts.Direct.Source, "put the file on a file system with O_DIRECT (ext4, xfs)"}
	case f.Facts.Direct.OffAlign > nvfsBlock:
		return &Decline{NVFS, "block size", fmt.Sprintf("%s has blocks of %d bytes, nvidia-fs of %d", f.Name, f.Facts.Direct.OffAlign, nvfsBlock), ""}
	case f.Buffered() < 0:
		return &Decline{NVFS, "descriptor", f.Name + " has O_DIRECT and cannot be opened again without", "mount /proc, or open the file without O_DIRECT"}
	}
	n, err := r.open(f)
	if err != nil {
		return &Decline{NVFS, "file", err.Error(), ""}
	}
	return n.refused.Load()
}

// open takes a file in, once.
func (r *NVFSRoute) open(f *storage.File) (*nvfsFile, error) {
	if n, ok := r.files.Load(f); ok {
		return n.(*nvfsFile), nil
	}
	// Of the two descriptors one was opened here, and its offset is nobody's.
	look := f.Buffered()
	if look == f.FD() {
		look = f.Direct()
	}
	n, err := nvfs.Borrow(f.Name, f.Direct(), look)
	if err != nil {
		return nil, err
	}
	got, known := r.files.LoadOrStore(f, &nvfsFile{File: n})
	if !known {
		f.OnClose(func() { r.files.Delete(f) })
	}
	return got.(*nvfsFile), nil
}

// Register ties a buffer to the module. A buffer that cannot be tied is not an
// error: its requests take another route.
func (r *NVFSRoute) Register(span gpu.Span, kind gpu.Kind) {
	if !kind.OnDevice() || len(*r.bufs.Load()) >= nvfsMost {
		return
	}
	if b := r.tie(span); b != nil {
		r.change(func(m map[gpu.Addr]*nvfsBuffer) { m[span.Base] = b })
	}
}

// Deregister unties it.
func (r *NVFSRoute) Deregister(span gpu.Span) {
	b, ok := (*r.bufs.Load())[span.Base]
	if !ok {
		return
	}
	r.change(func(m map[gpu.Addr]*nvfsBuffer) { delete(m, span.Base) })
	b.close()
}

func (r *NVFSRoute) change(edit func(map[gpu.Addr]*nvfsBuffer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(*r.bufs.Load())
	edit(next)
	r.bufs.Store(&next)
}

// Close unties everything and closes the node.
func (r *NVFSRoute) Close() error {
	r.bufs.Store(&map[gpu.Addr]*nvfsBuffer{})
	return errors.Join(r.spare.close(r.dev), r.client.Close())
}
