package cuda

import (
	"runtime"
	"strings"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/ptx"
)

type module struct {
	object
	params map[string][]int // parameter sizes by kernel
}

type function struct {
	m      *module
	handle uintptr
	name   string
	params []int
}

// Load compiles PTX text for the GPU. Its error contains the compiler's log.
func (d *Device) Load(text []byte) (gpu.Module, error) {
	s := &d.symbols.cuModuleLoadDataEx
	image := append(append(make([]byte, 0, len(text)+1), text...), 0)
	handle, options := new(uintptr), newJITOptions()
	c := d.call(s, ref(handle), refBytes(image), uintptr(len(options.keys)), ref(&options.keys), ref(&options.values))
	runtime.KeepAlive(image)
	if c != gpu.Success {
		return nil, d.fail(s, c, strings.TrimSpace(cString(options.log[:])))
	}
	m := &module{params: make(map[string][]int)}
	d.adopt(&m.object, *handle, &d.symbols.cuModuleUnload)
	kernels, err := ptx.Parse(text)
	if err != nil {
		_ = m.Close() // the parse error is the one to report
		return nil, d.fail(s, gpu.ErrInvalidImage, err.Error())
	}
	for _, k := range kernels {
		m.params[k.Name] = k.Params
	}
	return m, nil
}

// Func finds a kernel.
func (m *module) Func(name string) (gpu.Func, error) {
	s := &m.d.symbols.cuModuleGetFunction
	if m.closed.Load() {
		return nil, m.d.fail(s, m.d.unusable(), "module is closed", name)
	}
	params, ok := m.params[name]
	if !ok {
		return nil, m.d.fail(s, gpu.ErrNotFound, "", name)
	}
	cname := append([]byte(name), 0)
	h := new(uintptr)
	c := m.d.call(s, ref(h), m.handle, refBytes(cname))
	runtime.KeepAlive(cname)
	if err := m.d.check(s, c, name); err != nil {
		return nil, err
	}
	return &function{m, *h, name, params}, nil
}

// Name is the kernel's name in PTX.
func (f *function) Name() string { return f.name }

// Params are the sizes of the parameters.
func (f *function) Params() []int { return f.params }

// An argList is the memory of a kernel's arguments. The driver takes a list of
// pointers to them and copies the arguments before the launch returns.
type argList struct {
	words    []uint64
	pointers []uintptr
}

var argLists = sync.Pool{New: func() any { return new(argList) }}

// Launch enqueues a kernel.
func (t *Stream) Launch(f gpu.Func, grid, block gpu.Dim, args ...any) error {
	s := &t.d.symbols.cuLaunchKernel
	k, ok := f.(*function)
	if !ok || k == nil || k.m.closed.Load() {
		return t.d.fail(s, t.d.unusable(), "not a kernel of an open CUDA module")
	}
	l := argLists.Get().(*argList)
	defer argLists.Put(l)
	if err := l.encode(k, args); err != nil {
		return t.d.fail(s, gpu.ErrInvalidValue, err.Error(), k.name)
	}
	var list uintptr
	if len(l.pointers) > 0 {
		list = ref(&l.pointers[0])
	}
	grid, block = grid.Norm(), block.Norm()
	c := t.call(s, k.handle, uintptr(grid.X), uintptr(grid.Y), uintptr(grid.Z),
		uintptr(block.X), uintptr(block.Y), uintptr(block.Z), 0, t.handle, list, 0)
	if c != gpu.Success {
		return t.d.fail(s, c, "", k.name, grid, block)
	}
	return nil
}

func (l *argList) encode(k *function, args []any) error {
	words, err := ptx.EncodeArgs(l.words, k, args)
	if err != nil {
		return err
	}
	l.words, l.pointers = words, l.pointers[:0]
	for i := range words {
		l.pointers = append(l.pointers, ref(&words[i]))
	}
	return nil
}
