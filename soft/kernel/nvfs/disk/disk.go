// Package disk is a block driver with nvidia-fs hooks, for files of this machine:
// the file is the drive, and its device moves bytes between the file and the bus
// addresses that nvidia-fs gives it. Nothing passes through host memory.
package disk

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Disk is a storage module with one device. It is safe for concurrent use.
type Disk struct {
	name, version string
	port          *pcie.Function

	mu  sync.Mutex
	ops *nvfs.Ops

	work sync.Pool // of *work
}

var (
	_ nvfs.Storage     = (*Disk)(nil)
	_ nvfs.Registrar   = (*Disk)(nil)
	_ nvfs.Unregistrar = (*Disk)(nil)
)

// work is what a request needs.
type work struct {
	sg     []nvfs.SG
	ranges []pcie.Range
}

// New makes a driver whose device is plugged in at a port. The name and the
// version are those that /proc/driver/nvidia-fs/modules shows.
func New(port *pcie.Function, name, version string) *Disk {
	return &Disk{name: name, version: version, port: port, work: sync.Pool{New: func() any { return new(work) }}}
}

// Name is the module's.
func (d *Disk) Name() string { return d.name }

// Version is the module's.
func (d *Disk) Version() string { return d.version }

// Register takes the table.
func (d *Disk) Register(ops *nvfs.Ops) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = ops
	return nil
}

// Unregister gives it back.
func (d *Disk) Unregister() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = nil
}

// Serves says yes: every file lies on the drive.
func (d *Disk) Serves(int) bool { return true }

// Submit performs a request.
func (d *Disk) Submit(r *nvfs.Request) error {
	d.mu.Lock()
	ops := d.ops
	d.mu.Unlock()
	w := d.work.Get().(*work)
	defer d.work.Put(w)
	n := nvfs.NoGPUPages
	if ops != nil {
		w.sg, n = ops.BlkRqMapSG(r.Pages, w.sg[:0])
	}
	switch {
	case n == nvfs.NoGPUPages:
		return d.plain(r)
	case n < 0 || ops.DMAMapSGAttrs(d.port, w.sg) < 0:
		return syscall.EIO
	}
	err := d.transfer(r, w)
	ops.DMAUnmapSG(w.sg)
	clear(w.sg)
	return err
}

// transfer moves bytes between the file and the device's addresses.
func (d *Disk) transfer(r *nvfs.Request, w *work) error {
	w.ranges = w.ranges[:0]
	for _, s := range w.sg {
		w.ranges = append(w.ranges, pcie.Range{Bus: s.Bus, Len: s.Len})
	}
	dir := pcie.Write
	if r.Write {
		dir = pcie.Read
	}
	loan, err := d.port.LendAll(w.ranges, dir)
	if err != nil {
		return errors.Join(syscall.EIO, err)
	}
	err = move(r, loan.Segs())
	moved := loan.Len()
	if err != nil {
		moved = 0
	}
	if lost := loan.Return(moved); lost != nil && err == nil {
		err = errors.Join(syscall.EIO, lost)
	}
	return err
}

// plain is a request of ordinary memory.
func (d *Disk) plain(r *nvfs.Request) error {
	segs := make([][]byte, len(r.Pages))
	for i := range r.Pages {
		segs[i] = r.Pages[i].Mem
	}
	return move(r, segs)
}

// vectors is the most that one call takes: IOV_MAX.
const vectors = 1024

// move reads or writes the file. A device reads whole blocks: what lies behind
// the end of the file is zero.
func move(r *nvfs.Request, segs [][]byte) error {
	call := unix.Preadv
	if r.Write {
		call = unix.Pwritev
	}
	off := r.Off
	for len(segs) > 0 {
		part := segs[:min(len(segs), vectors)]
		n, err := call(r.FD, part, off)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if n == 0 && r.Write {
			return syscall.EIO
		}
		off += int64(n)
		segs = advance(segs, n)
		if !r.Write && n%nvfs.BlockSize != 0 || n == 0 {
			zero(segs)
			return nil
		}
	}
	return nil
}

// advance drops the first n bytes. The list is the loan's: it must not change,
// but for its own copy of the first.
func advance(segs [][]byte, n int) [][]byte {
	for len(segs) > 0 && n >= len(segs[0]) {
		n -= len(segs[0])
		segs = segs[1:]
	}
	if n > 0 {
		rest := append([][]byte{segs[0][n:]}, segs[1:]...)
		return rest
	}
	return segs
}

func zero(segs [][]byte) {
	for _, s := range segs {
		clear(s)
	}
}
