package gpu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/soft/internal/addrspace"
	"github.com/culvert-io/culvert/soft/internal/cards"
)

// A Driver is a gpu.Driver over GPUs in software.
type Driver struct {
	cfg   Config
	gpus  []*GPU
	cards *cards.Cards // the memory of gpus, if processes share it; else nil

	// mu guards the use of frames, addresses and blocks of all GPUs. It is never held
	// while bytes move or hooks run.
	mu         sync.Mutex
	regions    addrspace.Space[gpu.Addr, *region]
	gen        uint64
	commitment commitment
	accesses   int // not released
	exports    map[inode]*export
	known      map[object]*block // shared with other processes
	opened     map[opening]*region

	ctxMu    sync.Mutex
	contexts map[*context]struct{}
	closed   bool
}

// New creates the GPUs. Close frees their memory.
func New(cfg Config) (*Driver, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Driver{
		cfg:        cfg,
		commitment: newCommitment(),
		exports:    map[inode]*export{},
		known:      map[object]*block{},
		opened:     map[opening]*region{},
		contexts:   map[*context]struct{}{},
	}
	if cfg.Shared != "" {
		if err := d.share(); err != nil {
			return nil, err
		}
	}
	for i, m := range cfg.Models {
		g, err := newGPU(d, i, m)
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		d.gpus = append(d.gpus, g)
	}
	return d, nil
}

// Name returns "software GPU".
func (d *Driver) Name() string { return "software GPU" }

// Version returns the CUDA version that is emulated: 13.3, the first whose dma-bufs can be
// mapped.
func (d *Driver) Version() int { return 13030 }

// Devices returns descriptions of the GPUs.
func (d *Driver) Devices() ([]gpu.Info, error) {
	var infos []gpu.Info
	for _, g := range d.gpus {
		infos = append(infos, g.info)
	}
	return infos, nil
}

// Open returns GPU i with its primary context retained; it is a *Device.
func (d *Driver) Open(i int) (gpu.Device, error) {
	op := fmt.Sprintf("cuDevicePrimaryCtxRetain(%d)", i)
	g, err := d.GPU(i)
	if err != nil {
		return nil, gpu.Fail(op, gpu.ErrInvalidDevice, fmt.Sprintf("there are %d", len(d.gpus)))
	}
	d.ctxMu.Lock()
	defer d.ctxMu.Unlock()
	if d.closed {
		return nil, gpu.Fail(op, gpu.ErrDeinitialized, "the driver was closed")
	}
	if g.primary == nil {
		if g.primary, err = d.newContext(op, g); err != nil {
			return nil, err
		}
	}
	g.primary.handles++
	return &Device{ctx: g.primary}, nil
}

// Close destroys all contexts and unmaps all memory. Addresses of the driver must not be
// used any more. If an access was not released, it returns an error and the memory stays.
func (d *Driver) Close() error {
	d.ctxMu.Lock()
	all := slices.Collect(maps.Keys(d.contexts))
	clear(d.contexts)
	d.closed = true
	d.ctxMu.Unlock()
	for _, c := range all {
		c.destroy()
	}
	d.removeAll(func(*region) bool { return true })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.exports {
		d.unexport(e)
	}
	if d.accesses > 0 {
		return fmt.Errorf("close software GPU: %d accesses to its memory were not released", d.accesses)
	}
	var errs []error
	for _, g := range d.gpus {
		errs = append(errs, g.close())
	}
	d.gpus = nil
	if d.cards != nil {
		errs = append(errs, d.cards.Close())
	}
	return errors.Join(errs...)
}

// GPU returns card i.
func (d *Driver) GPU(i int) (*GPU, error) {
	if i < 0 || i >= len(d.gpus) {
		return nil, gpu.Fail(fmt.Sprintf("cuDeviceGet(%d)", i), gpu.ErrInvalidDevice, fmt.Sprintf("there are %d", len(d.gpus)))
	}
	return d.gpus[i], nil
}

// Find returns the card whose address a is, even if no memory is allocated there.
func (d *Driver) Find(a gpu.Addr) (*GPU, bool) {
	for _, g := range d.gpus {
		if g.window.overlaps(a, 1) {
			return g, true
		}
	}
	return nil, false
}
