// Package nvmestorage emulates the Linux nvme module with nvidia-fs hooks. It asks
// nvidia-fs what pages stand for, puts the bus addresses into the PRPs of a command
// and rings the drive's doorbell. The drive moves the bytes between the file, its
// namespace during the request, and GPU memory.
//
// Each request in flight has its own queue pair, namespace and interrupt.
package nvmestorage

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Driver is the module. It adds a drive at the first request and removes it when
// nvidia-fs is closed. It is safe for concurrent use.
type Driver struct {
	slot   func() (*pcie.Function, error)
	heap   bool
	layers []block.Layer // above the drive
	view   *block.View   // through them; nil if there are none
	mirror mirror        // the second drive of an array

	mu   sync.RWMutex // held for reading by requests
	ops  *nvfs.Ops
	fn   *pcie.Function
	ctrl *controller
	err  error // why there is none
	liar *nvme.Liar
}

var (
	_ nvfs.Storage     = (*Driver)(nil)
	_ nvfs.Registrar   = (*Driver)(nil)
	_ nvfs.Unregistrar = (*Driver)(nil)
)

// New loads the module. It calls slot once, for the slot of the drive. heap keeps the
// drive's registers on the heap, where the race detector sees them.
func New(slot func() (*pcie.Function, error), heap bool) *Driver {
	return &Driver{slot: slot, heap: heap}
}

// Name returns the module's name.
func (d *Driver) Name() string { return "nvme" }

// Version returns the module's version.
func (d *Driver) Version() string { return "1.0" }

// Register sets the table of nvidia-fs.
func (d *Driver) Register(ops *nvfs.Ops) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = ops
	return nil
}

// Unregister drops the table and removes the drive.
func (d *Driver) Unregister() { d.Close() }

// Close removes the drive when requests have ended.
func (d *Driver) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops, d.err = nil, nil
	if d.ctrl != nil {
		d.ctrl.close()
		d.ctrl = nil
	}
}

// Serves returns true: every file of the machine is on the drive, unless that has
// another driver.
func (d *Driver) Serves(int) bool {
	return !d.has(func(l block.Layer) bool { return l.Unhooked })
}

// Port returns where the drive is plugged in, nil before the first request.
func (d *Driver) Port() *pcie.Function {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.fn
}

// Stats returns the drive's counters, zero if there is no drive.
func (d *Driver) Stats() nvme.Stats {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.ctrl == nil {
		return nvme.Stats{}
	}
	return d.ctrl.Stats()
}

// Lie has the drive lie from now on; nil ends it.
func (d *Driver) Lie(l *nvme.Liar) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.liar = l
	if d.ctrl != nil {
		d.ctrl.Lie(l)
	}
}

// FailNext has the drive report an unrecovered media error for its next command, and then
// calls hit. It returns false if there is no drive. It waits for transfers: one that meets
// the error before this one would end this one, too. nil ends it.
func (d *Driver) FailNext(hit func()) bool {
	const unrecovered, phase = 0x281 << 17, 1<<17 - 1
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctrl == nil {
		return false
	}
	ctrl := d.ctrl
	if hit == nil {
		ctrl.Tamper(nil)
		return true
	}
	var once sync.Once
	ctrl.Tamper(func(c nvme.Completion) []nvme.Completion {
		once.Do(func() {
			c.DW3 = c.DW3&phase | unrecovered
			ctrl.Tamper(nil)
			hit()
		})
		return []nvme.Completion{c}
	})
	return true
}

// use returns the controller with mu held for reading.
func (d *Driver) use() (*controller, error) {
	d.mu.RLock()
	if d.ctrl != nil {
		return d.ctrl, nil
	}
	d.mu.RUnlock()
	if err := d.start(); err != nil {
		return nil, err
	}
	d.mu.RLock()
	if d.ctrl != nil {
		return d.ctrl, nil
	}
	d.mu.RUnlock()
	return nil, syscall.ENODEV // removed meanwhile
}

// start adds the drive.
func (d *Driver) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ctrl != nil || d.err != nil:
		return d.err
	case d.ops == nil:
		return syscall.ENODEV
	}
	if d.fn == nil {
		if d.fn, d.err = d.slot(); d.err != nil {
			return d.err
		}
	}
	var err error
	switch d.ctrl, err = newController(d.fn, d.heap, d.view); {
	case errors.Is(err, syscall.EMFILE):
		return err // nothing is wrong with the drive: the next request may have descriptors
	case err != nil:
		d.err = fmt.Errorf("nvme %s: %w", d.fn.Name(), errors.Join(syscall.EIO, err))
	default:
		d.ctrl.Lie(d.liar)
	}
	return d.err
}

// Submit performs a request, through the layers above the drive.
func (d *Driver) Submit(r *nvfs.Request) error {
	if len(d.layers) == 0 {
		return d.submit(r)
	}
	return d.descend(d.layers, r)
}

// submitUnhooked performs a request as a driver does that does not know nvidia-fs: it
// moves the bytes of the pages.
func (d *Driver) submitUnhooked(r *nvfs.Request) error {
	c, err := d.use()
	if err != nil {
		return err
	}
	defer d.mu.RUnlock()
	q := c.acquire()
	defer c.release(q)
	return q.plain(r)
}

// submit performs a request of the drive.
func (d *Driver) submit(r *nvfs.Request) error {
	c, err := d.use()
	if err != nil {
		return err
	}
	defer d.mu.RUnlock()
	q := c.acquire()
	defer c.release(q)
	var n int
	q.sg, n = d.ops.BlkRqMapSG(r.Pages, q.sg[:0])
	switch {
	case n == nvfs.NoGPUPages:
		return q.plain(r)
	case n < 0 || d.ops.DMAMapSGAttrs(d.fn, q.sg) < 0:
		return syscall.EIO
	}
	q.ranges = q.ranges[:0]
	for i := range q.sg {
		q.ranges = append(q.ranges, pcie.Range{Bus: q.sg[i].Bus, Len: q.sg[i].Len})
	}
	err = q.move(r, r.Off, q.ranges)
	d.ops.DMAUnmapSG(q.sg)
	clear(q.sg)
	return err
}

// BlockError returns the error of a block driver for a completion.
func BlockError(status uint16) error {
	switch abi.Status(status).Code() {
	case abi.SUCCESS:
		return nil
	case abi.UNRECOVERED_READ, abi.WRITE_FAULT:
		return syscall.ENODATA // critical medium error
	}
	return syscall.EIO
}
