package pythonapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/tensor"
)

// ABI is the version of requests, answers and C functions together.
const ABI = 2

// A API answers the Python package. The machine is opened by the first call
// that needs one; models can be looked at and read into host memory without.
type API struct {
	open    func() (*machine.Machine, error)
	objects *handle.Table[*object]

	mu      sync.Mutex
	machine *machine.Machine
	drv     *cufile.Driver
	devices map[int]gpu.Device
	calls   map[uint64]*pending // by ticket

	sums tensor.Sums
}

// New returns a door to the machine that open opens.
func New(open func() (*machine.Machine, error)) *API {
	return &API{
		open:    open,
		objects: handle.NewTable[*object](7),
		devices: map[int]gpu.Device{},
		calls:   map[uint64]*pending{},
	}
}

// ops are the operations by name. Each takes its own request and makes its own
// answer.
var ops = map[string]func(*API, context.Context, []byte) (any, error){
	"environment": answer((*API).environment),
	"open":        answer((*API).openModel),
	"plan":        answer((*API).plan),
	"load":        answer((*API).load),
	"finish":      answer((*API).finish),
	"fill":        answer((*API).fill),
	"save":        answer((*API).save),
	"attach":      answer((*API).attach),
	"tensors":     answer((*API).tensors),
	"machine":     answer((*API).describeMachine),
}

// answer takes a request apart for an operation.
func answer[Q, A any](f func(*API, context.Context, *Q) (A, error)) func(*API, context.Context, []byte) (any, error) {
	return func(d *API, ctx context.Context, text []byte) (any, error) {
		q := new(Q)
		if err := json.Unmarshal(text, q); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
		return f(d, ctx, q)
	}
}

// Call answers a request that does not take long. ok is false where the answer
// describes an error.
func (d *API) Call(request []byte) (reply []byte, ok bool) {
	return d.reply(context.Background(), request)
}

func (d *API) reply(ctx context.Context, request []byte) (reply []byte, ok bool) {
	v, err := d.guarded(ctx, request)
	if err == nil {
		reply, err = encode(v)
	}
	if err != nil {
		reply, _ = encode(Explain(err)) // strings and numbers: cannot fail
	}
	return reply, err == nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}

// guard lets nothing escape into C: neither a mistake of ours nor a fault at an
// address of the caller's.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

func (d *API) guarded(ctx context.Context, request []byte) (v any, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer guard(&err)
	var head struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(request, &head); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	op, ok := ops[head.Op]
	if !ok {
		return nil, fmt.Errorf("request: unknown op %q", head.Op)
	}
	return op(d, ctx, request)
}

// session opens the machine and cuFile on it, once.
func (d *API) session() (*machine.Machine, *cufile.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.openMachine(); err != nil {
		return nil, nil, err
	}
	if d.drv == nil {
		drv, err := cufile.Open(d.machine)
		if err != nil {
			return nil, nil, err
		}
		d.drv = drv
	}
	return d.machine, d.drv, nil
}

// openMachine wants d.mu held.
func (d *API) openMachine() (err error) {
	if d.machine == nil {
		d.machine, err = d.open()
	}
	return err
}

// Devices are the GPUs of the machine.
func (d *API) Devices() ([]gpu.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.openMachine(); err != nil {
		return nil, err
	}
	return d.machine.GPU.Devices()
}

// Device is a hold on a GPU, without the routes to it, which cost time that only
// loads need to spend.
func (d *API) Device(i int) (gpu.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.openMachine(); err != nil {
		return nil, err
	}
	if dev, ok := d.devices[i]; ok {
		return dev, nil
	}
	dev, err := d.machine.GPU.Open(i)
	if err != nil {
		return nil, err
	}
	d.devices[i] = dev
	return dev, nil
}

// Close gives the machine back. Tensors that are still held end with it.
func (d *API) Close() error {
	var errs []error
	for _, o := range d.objects.RemoveFunc(func(*object) bool { return true }) {
		errs = append(errs, o.end())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, dev := range d.devices {
		errs = append(errs, dev.Close())
		delete(d.devices, i)
	}
	errs = append(errs, d.sums.Close())
	if d.drv != nil {
		errs = append(errs, d.drv.Close())
		d.drv = nil
	}
	return errors.Join(errs...)
}

// An environmentRequest brings the variables that Culvert looks at. A Go library
// in a program of another language has the environment of the process's start;
// this is what the program has made of it since.
type environmentRequest struct {
	Variables map[string]string `json:"variables"`
}

func (d *API) environment(_ context.Context, q *environmentRequest) (struct{}, error) {
	for name, value := range q.Variables {
		if !strings.HasPrefix(name, "CULVERT_") {
			return struct{}{}, fmt.Errorf("%s is none of Culvert's variables", name)
		}
		if err := os.Setenv(name, value); err != nil {
			return struct{}{}, err
		}
	}
	return struct{}{}, nil
}

// A machineAnswer describes the machine.
type machineAnswer struct {
	Soft bool       `json:"software_machine"`
	Why  string     `json:"why"`
	GPUs []gpu.Info `json:"gpus"`
}

func (d *API) describeMachine(_ context.Context, _ *struct{}) (*machineAnswer, error) {
	infos, err := d.Devices()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &machineAnswer{d.machine.Soft, d.machine.Why, infos}, nil
}
