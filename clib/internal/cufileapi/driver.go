package cufileapi

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/lease"
	"github.com/culvert-io/culvert/clib/internal/logfile"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/machine"
)

// Version is the release whose API is implemented, as cuFileGetVersion reports it.
const Version = 1150

// An API answers the cuFile API. The machine is opened by the first call that
// needs one.
type API struct {
	// Log gets the errors of batch entries and of transfers in streams, which fail
	// after their call.
	Log func(function string, err error)
	// Stream finds a stream of the thread's CUDA. It checks the handle unless it is known
	// to be one. It must be set.
	Stream func(t *softcuda.Thread, id handle.ID, known bool) (cufile.Stream, error)
	// Caller calls user-space file systems. It must be set.
	Caller Caller

	// Variable is the value that an environment variable has now, and whether it is set. A
	// C program changes its environment after the Go core was loaded.
	Variable func(name string) (value string, ok bool)

	// Journal is the log file that cufile.json asks for.
	Journal logfile.File

	open func() (*machine.Machine, error)

	drv atomic.Pointer[cufile.Driver]

	mu      sync.Mutex // orders registrations and the last close
	files   *handle.Table[*cufile.File]
	batches *handle.Table[*cufile.Batch]
	streams map[handle.ID]*registeredStream
	params  parameters
	bars    func() ([]uint64, error) // sizes of BAR1 in KiB by GPU, read once
	stats   statistics
	leases  *lease.Table // nil if all reads enter Go
}

// New returns an API on the machine that open opens.
func New(open func() (*machine.Machine, error)) *API {
	a := &API{open: open, Log: func(string, error) {}, Variable: env.Lookup, files: handle.NewTable[*cufile.File](6), batches: handle.NewTable[*cufile.Batch](8), streams: map[handle.ID]*registeredStream{}, params: newParameters()}
	a.bars = sync.OnceValues(a.readBars)
	return a
}

// PublishLeases makes the driver publish leases in slots that C reads. It must be
// called before any other method.
func (a *API) PublishLeases(s *lease.Slots) { a.leases = lease.NewTable(s) }

// newDriver creates the driver in the first call.
func (a *API) newDriver() (*cufile.Driver, error) {
	if drv := a.drv.Load(); drv != nil {
		return drv, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if drv := a.drv.Load(); drv != nil {
		return drv, nil
	}
	m, err := a.open()
	if err != nil {
		return nil, &cufile.Error{Op: "open", Object: "machine", Code: cufile.CUDADriverError, Err: err}
	}
	var opts []cufile.Option
	if a.leases != nil {
		opts = append(opts, cufile.WithLeases(a.leases))
	}
	drv := cufile.New(m, opts...)
	a.drv.Store(drv)
	return drv, nil
}

// driver returns the driver. A closed one gets what was set for the next open, because
// the caller may open it.
func (a *API) driver() (*cufile.Driver, error) {
	drv, err := a.newDriver()
	if err != nil || drv.UseCount() > 0 {
		return drv, err
	}
	a.mu.Lock()
	c := a.configure()
	a.mu.Unlock()
	if err := drv.Configure(c); err != nil && !errors.Is(err, cufile.DriverAlreadyOpen) {
		return nil, err
	}
	return drv, nil
}

// DriverOpen is cuFileDriverOpen.
func (a *API) DriverOpen() error {
	drv, err := a.driver()
	if err != nil {
		return err
	}
	return drv.Open()
}

// DriverClose is cuFileDriverClose. All handles end with the last reference.
func (a *API) DriverClose() error {
	drv := a.drv.Load()
	if drv == nil {
		return cufile.DriverNotInitialized
	}
	if drv.UseCount() == 1 { // the last close: end transfers before memory is released
		for _, b := range a.batches.RemoveFunc(func(*cufile.Batch) bool { return true }) {
			b.Close()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err := drv.Close()
	if drv.UseCount() == 0 {
		for _, f := range a.files.RemoveFunc(func(*cufile.File) bool { return true }) {
			a.leases.RemoveFile(f)
		}
		clear(a.streams)
		a.params.reset()
	}
	return err
}

// UseCount is cuFileUseCount.
func (a *API) UseCount() int64 {
	if drv := a.drv.Load(); drv != nil {
		return int64(drv.UseCount())
	}
	return 0
}

// GetVersion is cuFileGetVersion.
func (a *API) GetVersion(out cmem.Ptr) error { return cmem.Answer(out, int32(Version)) }
