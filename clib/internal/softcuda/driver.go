package softcuda

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// A Caller calls C functions of the program.
type Caller interface {
	// HostFunc calls a CUhostFn.
	HostFunc(fn, user cmem.Ptr)
	// StreamCallback calls a CUstreamCallback.
	StreamCallback(fn cmem.Ptr, stream handle.ID, status gpu.Code, user cmem.Ptr)
	// LogCallback calls a CUlogsCallback.
	LogCallback(fn, user cmem.Ptr, level int32, message string)
}

// A Driver answers the driver API. Most calls fail before Init.
type Driver struct {
	// MapsExports reports whether the program's mmap maps dma-bufs: libculvert-dev.so is
	// loaded. Nil means no.
	MapsExports func() bool

	open func() (*softgpu.Driver, error)
	call Caller

	ready atomic.Pointer[machine]
	logs  logs

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

// A machine is the GPUs of an initialized driver.
type machine struct {
	drv     *softgpu.Driver
	devices []*device
}

// New returns a driver whose Init calls open for the GPUs.
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
		virtual:  virtual{handle.NewTable[*physical](7), map[gpu.Addr]reservation{}, map[gpu.Addr]*mapping{}},
		logs:     logs{callbacks: handle.NewTable[logCallback](9)},
	}
}

// Init is cuInit.
func (d *Driver) Init(_ Call, flags uint32) error {
	if flags != 0 {
		return gpu.ErrInvalidValue
	}
	return d.Start()
}

// Start initializes the driver, as cuInit does.
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
	for i, info := range infos {
		m.devices = append(m.devices, &device{num: int32(i), info: info})
	}
	d.ready.Store(m)
	return nil
}

// DriverGetVersion is cuDriverGetVersion, which works before cuInit.
func (d *Driver) DriverGetVersion(_ Call, out cmem.Ptr) error {
	return cmem.Answer(out, int32((*softgpu.Driver)(nil).Version()))
}

// id is a number that is unique in the process. Call with d.mu held.
func (d *Driver) id() uint64 {
	d.nextID++
	return d.nextID
}

// find looks a handle up; an unknown one is answered with code.
func find[T any](t *handle.Table[T], id handle.ID, code gpu.Code) (T, error) {
	v, ok := t.Get(id)
	if !ok {
		return v, code
	}
	return v, nil
}

// add makes a handle for v and stores it.
func add[T any](t *handle.Table[T], out cmem.Ptr, v T) error {
	id, ok := t.Add(v)
	if !ok {
		return gpu.ErrOutOfMemory
	}
	return cmem.Answer(out, id)
}

// closeOn closes what a failed call has made.
func closeOn(err error, made io.Closer) error {
	if err != nil {
		made.Close()
	}
	return err
}
