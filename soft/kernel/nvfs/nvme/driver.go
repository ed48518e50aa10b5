// Package nvme is the storage module of the same name, with nvidia-fs hooks: a
// block driver over a software NVMe drive. It asks nvidia-fs what pages stand for,
// puts the bus addresses that it gets into the PRPs of a command, and rings the
// drive's doorbell. The drive fetches the command and moves the bytes between the
// file, which is a namespace for as long as the request takes, and the GPU's
// memory.
//
// A request has a queue pair, a namespace and an interrupt of its own while it is
// under way, so that requests meet nowhere but in the drive.
package nvme

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Driver is the module. It makes a drive at the first request and lets go of it
// when nvidia-fs is not used any more. It is safe for concurrent use.
type Driver struct {
	slot func() (*pcie.Function, error)
	heap bool

	mu    sync.RWMutex // held for reading by requests
	ops   *nvfs.Ops
	fn    *pcie.Function
	drive *drive
	err   error // why there is no drive
}

var (
	_ nvfs.Storage     = (*Driver)(nil)
	_ nvfs.Registrar   = (*Driver)(nil)
	_ nvfs.Unregistrar = (*Driver)(nil)
)

// New loads the module. slot is asked once for a place to plug the drive in. heap
// keeps the drive's registers where the race detector sees them.
func New(slot func() (*pcie.Function, error), heap bool) *Driver {
	return &Driver{slot: slot, heap: heap}
}

// Name is the module's.
func (d *Driver) Name() string { return "nvme" }

// Version is the module's.
func (d *Driver) Version() string { return "1.0" }

// Register takes the table.
func (d *Driver) Register(ops *nvfs.Ops) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = ops
	return nil
}

// Unregister gives it back, and lets go of the drive.
func (d *Driver) Unregister() { d.Close() }

// Close lets go of the drive when requests have ended.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops, d.err = nil, nil
	if d.drive != nil {
		d.drive.close()
		d.drive = nil
	}
}

// Serves says yes: every file of the machine lies on the drive.
func (d *Driver) Serves(int) bool { return true }

// Port is where the drive is plugged in: nil before the first request.
func (d *Driver) Port() *pcie.Function {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.fn
}

// Stats is what the drive has done; nothing when there is none.
func (d *Driver) Stats() nvme.Stats {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.drive == nil {
		return nvme.Stats{}
	}
	return d.drive.ctrl.Stats()
}

// use returns the drive with the lock held for reading.
func (d *Driver) use() (*drive, error) {
	d.mu.RLock()
	if d.drive != nil {
		return d.drive, nil
	}
	d.mu.RUnlock()
	if err := d.start(); err != nil {
		return nil, err
	}
	d.mu.RLock()
	if d.drive != nil {
		return d.drive, nil
	}
	d.mu.RUnlock()
	return nil, syscall.ENODEV // it went meanwhile
}

// start plugs the drive in and brings it up.
func (d *Driver) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.drive != nil || d.err != nil:
		return d.err
	case d.ops == nil:
		return syscall.ENODEV
	}
	if d.fn == nil {
		if d.fn, d.err = d.slot(); d.err != nil {
			return d.err
		}
	}
	if d.drive, d.err = newDrive(d.fn, d.heap); d.err != nil {
		d.err = fmt.Errorf("nvme %s: %w", d.fn.Name(), errors.Join(syscall.EIO, d.err))
	}
	return d.err
}

// Submit performs a request.
func (d *Driver) Submit(r *nvfs.Request) error {
	dr, err := d.use()
	if err != nil {
		return err
	}
	defer d.mu.RUnlock()
	l := dr.get()
	defer dr.put(l)
	var n int
	l.sg, n = d.ops.BlkRqMapSG(r.Pages, l.sg[:0])
	switch {
	case n == nvfs.NoGPUPages:
		return l.plain(r)
	case n < 0 || d.ops.DMAMapSGAttrs(d.fn, l.sg) < 0:
		return syscall.EIO
	}
	l.ranges = l.ranges[:0]
	for i := range l.sg {
		l.ranges = append(l.ranges, pcie.Range{Bus: l.sg[i].Bus, Len: l.sg[i].Len})
	}
	err = l.move(r, r.Off, l.ranges)
	d.ops.DMAUnmapSG(l.sg)
	clear(l.sg)
	return err
}

// status is the error that a block driver makes of a drive's answer.
func status(s abi.Status) error {
	switch s.Code() {
	case abi.SUCCESS:
		return nil
	case abi.UNRECOVERED_READ, abi.WRITE_FAULT:
		return syscall.ENODATA // critical medium error
	}
	return syscall.EIO
}
