package softcuda

import (
	"encoding/binary"
	"os"
	"sync"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/gpu"
)

// A module is a CUmodule, a function a CUfunction.
type (
	module struct {
		ctx *context
		gpu gpu.Module

		mu    sync.Mutex
		funcs map[string]handle.ID // each function has one handle
	}
	function struct {
		ctx *context
		mod *module
		gpu gpu.Func
	}
)

// maxPTX bounds the search for the end of PTX text in memory.
const maxPTX = 64 << 20

// machineCode reports whether an image is not PTX text, by its first bytes.
// Machine code cannot run on the software GPU.
func machineCode(magic uint32) bool {
	const elf, fatBin, fatBin2 = 0x464c457f, 0xba55ed50, 0x466243b1
	return magic == elf || magic == fatBin || magic == fatBin2
}

// ModuleLoadData is cuModuleLoadData.
func (d *Driver) ModuleLoadData(c Call, out, image cmem.Ptr) error {
	if machineCode(cmem.Load[uint32](image)) {
		return gpu.Fail("cuModuleLoadData", gpu.ErrNoBinaryForGPU, "the software GPU needs PTX text")
	}
	text, ok := cmem.String(image, maxPTX)
	if !ok {
		return gpu.ErrInvalidImage
	}
	return d.load(c, out, []byte(text))
}

// ModuleLoadDataEx is cuModuleLoadDataEx. The options are a compiler's, and there
// is none.
func (d *Driver) ModuleLoadDataEx(c Call, out, image cmem.Ptr, n uint32, options, values cmem.Ptr) error {
	if n > 0 && (options == 0 || values == 0) {
		return gpu.ErrInvalidValue
	}
	return d.ModuleLoadData(c, out, image)
}

// ModuleLoad is cuModuleLoad.
func (d *Driver) ModuleLoad(c Call, out, name cmem.Ptr) error {
	path, ok := cmem.String(name, 4096)
	if !ok {
		return gpu.ErrInvalidValue
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return gpu.Fail("cuModuleLoad("+path+")", gpu.ErrFileNotFound, err.Error())
	}
	if len(text) >= 4 && machineCode(binary.LittleEndian.Uint32(text)) {
		return gpu.ErrNoBinaryForGPU
	}
	return d.load(c, out, text)
}

func (d *Driver) load(c Call, out cmem.Ptr, text []byte) error {
	m, err := c.ctx.gpu.Load(text)
	if err != nil {
		return err
	}
	return closeOn(add(d.modules, out, &module{ctx: c.ctx, gpu: m, funcs: map[string]handle.ID{}}), m)
}

// ModuleUnload is cuModuleUnload. The functions of the module end with it.
func (d *Driver) ModuleUnload(_ Call, id handle.ID) error {
	m, ok := d.modules.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	d.funcs.RemoveFunc(func(f *function) bool { return f.mod == m })
	return m.gpu.Close()
}

// ModuleGetLoadingMode is cuModuleGetLoadingMode: lazy, CUDA's default since 12.2.
func (d *Driver) ModuleGetLoadingMode(_ Call, out cmem.Ptr) error {
	const lazy = int32(2)
	return cmem.Answer(out, lazy)
}

// ModuleGetFunction is cuModuleGetFunction.
func (d *Driver) ModuleGetFunction(_ Call, out cmem.Ptr, id handle.ID, name cmem.Ptr) error {
	m, err := find(d.modules, id, gpu.ErrInvalidHandle)
	if err != nil {
		return err
	}
	s, ok := cmem.String(name, 4096)
	if !ok {
		return gpu.ErrInvalidValue
	}
	fid, err := d.function(m, s)
	return cmem.Put(out, fid, err)
}

func (d *Driver) function(m *module, name string) (handle.ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, ok := m.funcs[name]; ok {
		return id, nil
	}
	f, err := m.gpu.Func(name)
	if err != nil {
		return 0, err
	}
	id, ok := d.funcs.Add(&function{m.ctx, m, f})
	if !ok {
		return 0, gpu.ErrOutOfMemory
	}
	m.funcs[name] = id
	return id, nil
}

// FuncGetAttribute is cuFuncGetAttribute. Built-in kernels use no shared or
// constant memory.
func (d *Driver) FuncGetAttribute(_ Call, out cmem.Ptr, attr int32, id handle.ID) error {
	const maxThreads, ptxVersion, binaryVersion, last = 0, 5, 6, 15
	f, ok := d.funcs.Get(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	info := f.ctx.gpu.Info()
	switch {
	case attr == maxThreads:
		cmem.Store(out, int32(1024))
	case attr == ptxVersion || attr == binaryVersion:
		cmem.Store(out, int32(10*info.Capability[0]+info.Capability[1]))
	case attr > 0 && attr <= last:
		cmem.Store(out, int32(0))
	default:
		return gpu.ErrInvalidValue
	}
	return nil
}

// LaunchKernel is cuLaunchKernel.
func (d *Driver) LaunchKernel(c Call, id handle.ID, gx, gy, gz, bx, by, bz, shared uint32, params, extra cmem.Ptr) error {
	f, ok := d.funcs.Get(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	if gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || params != 0 && extra != 0 {
		return gpu.ErrInvalidValue
	}
	var (
		args []any
		err  error
	)
	if extra != 0 {
		args, err = packedArgs(f.gpu.Params(), extra)
	} else {
		args, err = pointedArgs(f.gpu.Params(), params)
	}
	if err != nil {
		return err
	}
	return c.stream.gpu.Launch(f.gpu, gpu.Dim{X: gx, Y: gy, Z: gz}, gpu.Dim{X: bx, Y: by, Z: bz}, args...)
}

// pointedArgs reads arguments from kernelParams: a pointer to each.
func pointedArgs(sizes []int, params cmem.Ptr) ([]any, error) {
	if params == 0 && len(sizes) > 0 {
		return nil, gpu.ErrInvalidValue
	}
	args := make([]any, len(sizes))
	for i, size := range sizes {
		p := cmem.Load[cmem.Ptr](cmem.At[cmem.Ptr](params, i))
		if p == 0 {
			return nil, gpu.ErrInvalidValue
		}
		args[i] = loadArg(p, size)
	}
	return args, nil
}

// packedArgs reads arguments from "extra": one buffer with all of them, each
// aligned to its size.
func packedArgs(sizes []int, extra cmem.Ptr) ([]any, error) {
	const end, buffer, length = 0, 1, 2
	var base, room cmem.Ptr
	for i := 0; ; i += 2 {
		key := cmem.Load[cmem.Ptr](cmem.At[cmem.Ptr](extra, i))
		if key == end {
			break
		}
		value := cmem.Load[cmem.Ptr](cmem.At[cmem.Ptr](extra, i+1))
		switch {
		case key == buffer:
			base = value
		case key == length && value != 0:
			room = cmem.Ptr(cmem.Load[uint64](value))
		default:
			return nil, gpu.ErrInvalidValue
		}
	}
	args := make([]any, len(sizes))
	var off cmem.Ptr
	for i, size := range sizes {
		n := cmem.Ptr(size)
		off = (off + n - 1) / n * n
		if base == 0 || off+n > room {
			return nil, gpu.ErrInvalidValue
		}
		args[i] = loadArg(base+off, size)
		off += n
	}
	return args, nil
}

func loadArg(p cmem.Ptr, size int) any {
	if size == 4 {
		return cmem.Load[uint32](p)
	}
	return cmem.Load[uint64](p)
}
