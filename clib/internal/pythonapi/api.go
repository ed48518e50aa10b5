package pythonapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/tensor"
)

// ABI is the version of requests, answers and C functions together.
const ABI = 5

// An API answers the Python package. The first call that needs a machine opens it;
// listing models and reading into host memory need none.
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

// New returns an API on the machine that open opens.
func New(open func() (*machine.Machine, error)) *API {
	return &API{
		open:    open,
		objects: handle.NewTable[*object](7),
		devices: map[int]gpu.Device{},
		calls:   map[uint64]*pending{},
	}
}

// ops are the operations by name.
var ops = map[string]func(*API, context.Context, []byte) (any, error){
	"environment": answer((*API).environment),
	"open":        answer((*API).openModel),
	"plan":        answer((*API).plan),
	"load":        answer((*API).load),
	"arrived":     answer((*API).arrived),
	"finish":      answer((*API).finish),
	"fill":        answer((*API).fill),
	"read":        answer((*API).read),
	"segment":     answer((*API).segment),
	"save":        answer((*API).save),
	"attach":      answer((*API).attach),
	"tensors":     answer((*API).tensors),
	"machine":     answer((*API).describeMachine),
	"break":       answer((*API).breakMachine),
	"fired":       answer((*API).fired),
}

// answer decodes the request of an operation.
func answer[Q, A any](f func(*API, context.Context, *Q) (A, error)) func(*API, context.Context, []byte) (any, error) {
	return func(a *API, ctx context.Context, text []byte) (any, error) {
		q := new(Q)
		if err := json.Unmarshal(text, q); err != nil {
			return nil, undecoded(err)
		}
		return f(a, ctx, q)
	}
}

// undecoded names the argument of a wrong type: fields have the names that arguments
// have in Python.
func undecoded(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name := e.Field[strings.LastIndexByte(e.Field, '.')+1:]
		return requestError{fmt.Errorf("%s: want %s, not %s", name, e.Type, e.Value)}
	}
	return fmt.Errorf("request: %w", err)
}

// Call answers a request that is quick to answer. ok is false if the answer
// describes an error.
func (a *API) Call(request []byte) (reply []byte, ok bool) {
	return a.reply(context.Background(), request)
}

func (a *API) reply(ctx context.Context, request []byte) (reply []byte, ok bool) {
	v, err := a.guarded(ctx, request)
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

// guard turns a panic, such as a fault at an address of the caller's, into an
// error: nothing may unwind into C.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

func (a *API) guarded(ctx context.Context, request []byte) (v any, err error) {
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
	return op(a, ctx, request)
}

// session opens the machine and cuFile on it, once.
func (a *API) session() (*machine.Machine, *cufile.Driver, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.openMachineLocked(); err != nil {
		return nil, nil, err
	}
	if a.drv == nil {
		drv, err := cufile.Open(a.machine)
		if err != nil {
			return nil, nil, err
		}
		a.drv = drv
	}
	return a.machine, a.drv, nil
}

// openBeside starts to open the session and returns a function that waits for it.
func (a *API) openBeside() (wait func() (*machine.Machine, *cufile.Driver, error)) {
	var m *machine.Machine
	var drv *cufile.Driver
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guard(&err)
		m, drv, err = a.session()
	}()
	return func() (*machine.Machine, *cufile.Driver, error) {
		<-done
		return m, drv, err
	}
}

func (a *API) openMachineLocked() (err error) {
	if a.machine == nil {
		a.machine, err = a.open()
	}
	return err
}

// Devices returns the GPUs of the machine.
func (a *API) Devices() ([]gpu.Info, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.openMachineLocked(); err != nil {
		return nil, err
	}
	return a.machine.GPU.Devices()
}

// Device returns an open GPU without its routes: preparing those takes time that
// only loads need.
func (a *API) Device(i int) (gpu.Device, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.openMachineLocked(); err != nil {
		return nil, err
	}
	if dev, ok := a.devices[i]; ok {
		return dev, nil
	}
	dev, err := a.machine.GPU.Open(i)
	if err != nil {
		return nil, err
	}
	a.devices[i] = dev
	return dev, nil
}

// Close closes the machine, and ends tensors that are still in use.
func (a *API) Close() error {
	var errs []error
	for _, o := range a.objects.RemoveFunc(func(*object) bool { return true }) {
		errs = append(errs, o.end())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, dev := range a.devices {
		errs = append(errs, dev.Close())
		delete(a.devices, i)
	}
	errs = append(errs, a.sums.Close())
	if a.drv != nil {
		errs = append(errs, a.drv.Close())
		a.drv = nil
	}
	return errors.Join(errs...)
}

// An environmentRequest has the current values of the variables that matters reports.
// A Go library in a program of another language sees those of the process's start.
type environmentRequest struct {
	Variables map[string]string `json:"variables"`
}

// matters reports a variable that Culvert or a client of object stores reads.
func matters(name string) bool {
	return strings.HasPrefix(name, "CULVERT_") || strings.HasPrefix(name, "AWS_") ||
		slices.Contains([]string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}, strings.ToUpper(name))
}

// environment takes over these variables, and forgets those that the program has removed.
func (a *API) environment(_ context.Context, q *environmentRequest) (struct{}, error) {
	for name := range q.Variables {
		if !matters(name) {
			return struct{}{}, fmt.Errorf("%s is not a variable that Culvert reads", name)
		}
	}
	var errs []error
	for _, entry := range env.All() {
		name, _, _ := strings.Cut(entry, "=")
		if _, kept := q.Variables[name]; matters(name) && !kept {
			errs = append(errs, os.Unsetenv(name))
		}
	}
	for name, value := range q.Variables {
		// os.Setenv is setenv of the C library, too, which other threads may be reading.
		if now, set := env.Lookup(name); !set || now != value {
			errs = append(errs, os.Setenv(name, value))
		}
	}
	return struct{}{}, errors.Join(errs...)
}

type machineAnswer struct {
	Soft bool       `json:"software_machine"`
	Why  string     `json:"why"`
	GPUs []gpu.Info `json:"gpus"`
}

func (a *API) describeMachine(_ context.Context, _ *struct{}) (*machineAnswer, error) {
	infos, err := a.Devices()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &machineAnswer{a.machine.Soft, a.machine.Why, infos}, nil
}
