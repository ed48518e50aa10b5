package cufiledoor

import (
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
)

// Version is the release whose API is answered, as cuFileGetVersion tells it.
const Version = 1150

// A Door answers the cuFile API. The machine is opened by the first call that
// needs one.
type Door struct {
	open func() (*machine.Machine, error)

	drv  atomic.Pointer[cufile.Driver]
	real bool // CUDA is NVIDIA's; known when there is a driver

	mu      sync.Mutex // orders registrations and the last close
	files   *handle.Table[*cufile.File]
	batches *handle.Table[*batch]
	streams map[handle.ID]bool // that were registered
	params  parameters
	bars    bars
	stats   statistics
	leases  *leases // nil where C reads nothing by itself
}

// New returns a door to the machine that open opens.
func New(open func() (*machine.Machine, error)) *Door {
	return &Door{open: open, files: handle.NewTable[*cufile.File](6), batches: handle.NewTable[*batch](8), streams: map[handle.ID]bool{}, params: newParameters()}
}

func (d *Door) driver() (*cufile.Driver, error) {
	if drv := d.drv.Load(); drv != nil {
		return drv, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if drv := d.drv.Load(); drv != nil {
		return drv, nil
	}
	m, err := d.open()
	if err != nil {
		return nil, &cufile.Error{Op: "open", Object: "machine", Code: cufile.CUDADriverError, Err: err}
	}
	var opts []cufile.Option
	if d.leases != nil {
		opts = append(opts, cufile.WithBorrower(d.leases))
	}
	drv := cufile.New(m, opts...)
	d.real = !m.Soft
	d.drv.Store(drv)
	return drv, nil
}

// DriverOpen is cuFileDriverOpen.
func (d *Door) DriverOpen() error {
	drv, err := d.driver()
	if err != nil {
		return err
	}
	return drv.Open()
}

// DriverClose is cuFileDriverClose. With the last reference all handles end.
func (d *Door) DriverClose() error {
	drv := d.drv.Load()
	if drv == nil {
		return cufile.DriverNotInitialized
	}
	if drv.UseCount() == 1 { // the last one goes: nobody may be at work when memory is released
		for _, b := range d.batches.RemoveFunc(func(*batch) bool { return true }) {
			b.end()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := drv.Close()
	if drv.UseCount() == 0 {
		for _, f := range d.files.RemoveFunc(func(*cufile.File) bool { return true }) {
			d.leases.forget(f)
		}
		clear(d.streams)
		clear(d.params.live)
		d.params.poll = false
	}
	return err
}

// UseCount is cuFileUseCount.
func (d *Door) UseCount() int64 {
	if drv := d.drv.Load(); drv != nil {
		return int64(drv.UseCount())
	}
	return 0
}

// GetVersion is cuFileGetVersion.
func (d *Door) GetVersion(out cmem.Ptr) error {
	cmem.Store(out, int32(Version))
	return nil
}
