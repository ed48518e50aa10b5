package softcuda

import (
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A Caller calls C functions that a program gave us.
type Caller interface {
	// HostFunc calls a CUhostFn.
	HostFunc(fn, user cmem.Ptr)
	// StreamCallback calls a CUstreamCallback.
	StreamCallback(fn cmem.Ptr, stream handle.ID, status gpu.Code, user cmem.Ptr)
}

// A Driver answers the driver API. It does nothing before Init.
type Driver struct {
	open func() (*softgpu.Driver, error)
	call Caller

	ready atomic.Pointer[machine]

	mu       sync.Mutex // guards what follows, and the devices' primary contexts
	nextID   uint64
	allocs   map[gpu.Addr]*alloc
	contexts *handle.Table[*context]
	streams  *handle.Table[*stream]
	events   *handle.Table[*event]
	modules  *handle.Table[*module]
	funcs    *handle.Table[*function]
	virtual  virtual
}

// A machine is the GPUs, once they are there.
type machine struct {
	drv     *softgpu.Driver
	devices []*device
}

// New returns a driver that gets its GPUs from open, which Init calls.
func New(open func() (*softgpu.Driver, error), call Caller) *Driver {
	return &Driver{
		open:     open,
		call:     call,
		allocs:   map[gpu.Addr]*alloc{},
		contexts: handle.NewTable[*context](1),
		streams:  handle.NewTable[*stream](2),
		events:   handle.NewTable[*event](3),
		modules:  handle.NewTable[*module](4),
		funcs:    handle.NewTable[*function](5),
		virtual:  newVirtual(),
	}
}

// Init is cuInit.
func (d *Driver) Init(_ *Thread, flags uint32) error {
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	return d.Start()
}

// Start makes the driver ready, as cuInit does.
func (d *Driver) Start() error {
	if d.ready.Load() != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready.Load() != nil {
		return nil
	}
	drv, err := d.open()
	if err != nil {
		return err
	}
	infos, err := drv.Devices()
	if err != nil {
		return err
	}
	m := &machine{drv: drv}
	for _, info := range infos {
		m.devices = append(m.devices, &device{info: info})
	}
	d.ready.Store(m)
	return nil
}

// DriverGetVersion works before cuInit, as in CUDA.
func (d *Driver) DriverGetVersion(_ *Thread, out cmem.Ptr) error {
	cmem.Store(out, int32((*softgpu.Driver)(nil).Version()))
	return nil
}

func (d *Driver) machine() (*machine, error) {
	if m := d.ready.Load(); m != nil {
		return m, nil
	}
	return nil, gpu.ErrNotInitialized
}

// id is a number that nothing else in the process has.
func (d *Driver) id() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextID++
	return d.nextID
}
