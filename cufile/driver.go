package cufile

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// A Driver is a session of the cuFile API on one machine. Opens are counted: each one
// needs a Close, and the last Close releases every handle and buffer. The first
// registration opens the driver implicitly, as in cuFile.
type Driver struct {
	m    *machine.Machine
	kind route.Machine // of m, for receipts
	log  *slog.Logger

	mu      sync.Mutex
	count   int
	closing bool
	files   map[*File]struct{}
	byFD    map[int]*File
	gpus    map[int]*gpuState
	probe   gpu.Device // any open GPU: pointers are looked up through it

	config Config // changes only while the driver is closed

	leases LeaseHolder // nil if no leases are granted

	words   *completionWords // nil before stream I/O
	streams streamLocks
	handoff handoff

	buffers bufferTable
	plain   *ladder.Ladder // for memory that is on no GPU
}

// gpuState is a GPU that the driver has opened and the routes to it.
type gpuState struct {
	dev    gpu.Device
	ladder *ladder.Ladder
}

// New returns a closed driver.
func New(m *machine.Machine, opts ...Option) *Driver {
	trace.StartRun()
	d := &Driver{
		m:     m,
		log:   slog.New(slog.DiscardHandler),
		files: map[*File]struct{}{},
		byFD:  map[int]*File{},
		gpus:  map[int]*gpuState{},
		plain: ladder.HostMemory(),
	}
	d.handoff.init()
	if m != nil {
		d.kind = m.Kind()
	}
	for _, o := range opts {
		o(d)
	}
	if d.faults() != nil {
		d.leases = nil // reads under a lease would not be seen here
	}
	return d
}

// faults are those of a software machine that a test breaks, usually nil.
func (d *Driver) faults() machine.Faults {
	if d.m == nil {
		return nil
	}
	return d.m.Faults
}

// Open returns a driver that has been opened once.
func Open(m *machine.Machine, opts ...Option) (*Driver, error) {
	d := New(m, opts...)
	return d, d.Open()
}

// Open adds a reference.
func (d *Driver) Open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.openLocked()
}

func (d *Driver) openLocked() error {
	if d.closing {
		return &Error{Op: "open", Object: "driver", Code: DriverClosing}
	}
	if d.probe == nil {
		if _, err := d.gpuLocked(0); err != nil {
			return err
		}
		d.probe = d.gpus[0].dev
	}
	d.count++
	return nil
}

// use opens the driver if it is closed.
func (d *Driver) use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count > 0 && !d.closing {
		return nil
	}
	return d.openLocked()
}

// Machine is the kind of machine that the driver is on.
func (d *Driver) Machine() route.Machine { return d.kind }

// UseCount is the number of references.
func (d *Driver) UseCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// Close drops a reference. The last one waits for transfers in flight and
// releases everything that was registered. Transfers that wait in streams fail when
// their turn comes; the GPUs are closed after the last of them.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.count == 0 {
		d.mu.Unlock()
		return &Error{Op: "close", Object: "driver", Code: DriverNotInitialized}
	}
	if d.count--; d.count > 0 {
		d.mu.Unlock()
		return nil
	}
	d.closing = true
	files := make([]*File, 0, len(d.files))
	for f := range d.files {
		files = append(files, f)
	}
	d.mu.Unlock()

	for _, f := range files {
		f.Close()
	}
	for _, b := range d.buffers.all() {
		b.Close()
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	gpus, words := d.gpus, d.words
	d.gpus, d.words = map[int]*gpuState{}, nil
	d.probe, d.closing = nil, false
	if words == nil {
		return closeGPUs(gpus)
	}
	return words.end(func() error { return closeGPUs(gpus) })
}

func closeGPUs(gpus map[int]*gpuState) error {
	var errs []error
	for _, g := range gpus {
		errs = append(errs, g.ladder.Close(), g.dev.Close())
	}
	return errors.Join(errs...)
}

// Device is GPU i as the driver has opened it, to allocate memory or launch kernels.
// It closes with the driver.
func (d *Driver) Device(i int) (gpu.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return nil, &Error{Op: "open", Object: "device", Code: DriverNotInitialized}
	}
	g, err := d.gpuLocked(i)
	if err != nil {
		return nil, err
	}
	return g.dev, nil
}

// Prepare makes what a large transfer to GPU i needs, such as pinned memory, and
// returns when the first byte could be moved. A caller runs it beside other
// preparations; without it the first transfer does the same.
func (d *Driver) Prepare(i int) error {
	d.mu.Lock()
	if d.count == 0 {
		d.mu.Unlock()
		return &Error{Op: "prepare", Object: gpuName(i), Code: DriverNotInitialized}
	}
	g, err := d.gpuLocked(i)
	d.mu.Unlock()
	if err == nil {
		g.ladder.PrepareLarge()
	}
	return err
}

// KeepCeiling records the pinned-copy rate that was measured to or from a device:
// receipts report their share of it, in this process and in later ones.
func (d *Driver) KeepCeiling(device gpu.Device, dir route.Dir, bytesPerSecond float64) error {
	return tune.StorePinned(device.Info(), dev.Of(d.m).FS(), dir == route.Write, bytesPerSecond)
}

func (d *Driver) gpuLocked(i int) (*gpuState, error) {
	if g, ok := d.gpus[i]; ok {
		return g, nil
	}
	if d.m == nil || d.m.GPU == nil {
		return nil, &Error{Op: "open", Object: gpuName(i), Code: InvalidValue, Err: errors.New("machine is nil"), Fix: "check the error of machine.Open"}
	}
	if err := ladder.CheckSwitch(); err != nil {
		return nil, &Error{Op: "open", Object: gpuName(i), Code: InvalidValue, Err: &machine.SettingError{Name: ladder.RoutesSwitch, Err: err}}
	}
	device, err := d.m.GPU.Open(i)
	if err != nil {
		failed := &Error{Op: "open", Object: gpuName(i), Code: DeviceNotFound, Err: err}
		if have, listed := d.m.GPU.Devices(); listed == nil && (i < 0 || i >= len(have)) {
			failed.Err, failed.Fix = &missingGPU{len(have), err}, "culvert check lists them"
			if d.m.Soft && i >= 0 {
				failed.Fix = fmt.Sprintf("CULVERT_SOFT=gpus=%d gives the software machine more", i+1)
			}
		}
		return nil, failed
	}
	g := &gpuState{device, ladder.Open(device, dev.Of(d.m), d.log, d.config.ladder())}
	d.gpus[i] = g
	return g, nil
}

// pointer asks the GPU driver about an address.
func (d *Driver) pointer(a gpu.Addr) (gpu.Pointer, error) {
	d.mu.Lock()
	dev := d.probe
	d.mu.Unlock()
	if dev == nil {
		return gpu.Pointer{}, DriverNotInitialized
	}
	return dev.Pointer(a)
}

// ladderOf is the ladder for memory of a kind on GPU dev.
func (d *Driver) ladderOf(dev int, kind gpu.Kind) (*ladder.Ladder, error) {
	if !kind.OnDevice() {
		return d.plain, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.gpuLocked(dev)
	if err != nil {
		return nil, err
	}
	return g.ladder, nil
}

// missingGPU says in other words than the GPU driver that a GPU is not there.
type missingGPU struct {
	have int
	err  error
}

func (e *missingGPU) Error() string { return fmt.Sprintf("this machine has %d GPUs", e.have) }
func (e *missingGPU) Unwrap() error { return e.err }

func gpuName(i int) string { return fmt.Sprintf("gpu:%d", i) }
