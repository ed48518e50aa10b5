package gpu

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/ptx"
)

// A Module is a gpu.Module: kernels by name, each with its Go function.
type Module struct {
	dev     *Device
	entries []ptx.Kernel
	closed  atomic.Bool
}

var _ gpu.Module = (*Module)(nil)

// Load loads PTX text, up to the first NUL. It refuses what CUDA's compiler would
// refuse, as far as checkPTX checks it.
func (x *Device) Load(text []byte) (gpu.Module, error) {
	const op = "cuModuleLoadData"
	if err := x.check(op); err != nil {
		return nil, err
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	if err := checkPTX(string(text), x.ctx.card.model.Capability); err != nil {
		return nil, fail(op, err)
	}
	entries, err := ptx.Parse(text)
	if err != nil {
		return nil, gpu.Fail(op, gpu.ErrInvalidPTX, err.Error())
	}
	return &Module{dev: x, entries: entries}, nil
}

// Func returns a kernel. One without a Go function is ErrNotFound, too.
func (m *Module) Func(name string) (gpu.Func, error) {
	op := fmt.Sprintf("cuModuleGetFunction(%s)", name)
	if m.closed.Load() {
		return nil, gpu.Fail(op, gpu.ErrInvalidHandle, "the module was unloaded")
	}
	if err := m.dev.check(op); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.entries, func(e ptx.Kernel) bool { return e.Name == name })
	if i < 0 {
		return nil, gpu.Fail(op, gpu.ErrNotFound, "the PTX has no such entry")
	}
	k, ok := kernels.Lookup(name)
	if !ok {
		return nil, gpu.Fail(op, gpu.ErrNotFound,
			"the software GPU cannot run PTX, and package gpu/kernels has no Go function for entry "+name)
	}
	if !slices.Equal(k.Params, m.entries[i].Params) {
		return nil, gpu.Fail(op, gpu.ErrNotFound,
			fmt.Sprintf("the PTX's parameters have the sizes %d, those of the Go function of that name %d", m.entries[i].Params, k.Params))
	}
	return &Func{mod: m, kernel: k}, nil
}

// Close unloads the module.
func (m *Module) Close() error {
	const op = "cuModuleUnload()"
	if m.closed.Swap(true) {
		return gpu.Fail(op, gpu.ErrInvalidHandle, "the module was unloaded before")
	}
	return m.dev.check(op)
}

// A Func is a gpu.Func.
type Func struct {
	mod    *Module
	kernel kernels.Kernel
}

var _ gpu.Func = (*Func)(nil)

// Name returns the kernel's name.
func (f *Func) Name() string { return f.kernel.Name }

// Params returns the sizes of its parameters.
func (f *Func) Params() []int { return f.kernel.Params }
