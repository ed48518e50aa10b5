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
		funcs map[string]handle.ID // a function has one handle, however often it is asked for
	}
	function struct {
		ctx *context
		mod *module
		gpu gpu.Func
	}
)

// maxPTX bounds the search for the end of PTX text in memory.
const maxPTX = 64 << 20

// Images that are not PTX text, by their first bytes.
const (
	magicELF      = 0x464c457f
	magicFatBin   = 0xba55ed50
	magicFatBinV2 = 0x466243b1
)

// ModuleLoadData is cuModuleLoadData. Machine code cannot run here.
func (d *Driver) ModuleLoadData(t *Thread, out, image cmem.Ptr) error {
	switch cmem.Load[uint32](image) {
	case magicELF, magicFatBin, magicFatBinV2:
		return gpu.Fail("cuModuleLoadData", gpu.ErrNoBinaryForGPU, "the software GPU takes PTX text")
	}
	text, ok := cmem.String(image, maxPTX)
	if !ok {
		return gpu.ErrInvalidImage
	}
	return d.load(t, out, []byte(text))
}

// ModuleLoadDataEx is cuModuleLoadDataEx; there is no compiler whose options
// would matter.
func (d *Driver) ModuleLoadDataEx(t *Thread, out, image cmem.Ptr, n uint32, options, values cmem.Ptr) error {
	if n > 0 && (options == 0 || values == 0) {
		return gpu.ErrInvalidValue
	}
	return d.ModuleLoadData(t, out, image)
}

// ModuleLoad is cuModuleLoad.
func (d *Driver) ModuleLoad(t *Thread, out, name cmem.Ptr) error {
	path, ok := cmem.String(name, 4096)
	if !ok {
		return gpu.ErrInvalidValue
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return gpu.Fail("cuModuleLoad("+path+")", gpu.ErrFileNotFound, err.Error())
	}
	if len(text) >= 4 {
		switch binary.LittleEndian.Uint32(text) {
		case magicELF, magicFatBin, magicFatBinV2:
			return gpu.ErrNoBinaryForGPU
		}
	}
	return d.load(t, out, text)
}

func (d *Driver) load(t *Thread, out cmem.Ptr, text []byte) error {
	c, err := d.current(t)
	if err != nil {
		return err
	}
	m, err := c.gpu.Load(text)
	if err != nil {
		return err
	}
	id, ok := d.modules.Add(&module{ctx: c, gpu: m, funcs: map[string]handle.ID{}})
	if !ok {
		m.Close()
		return gpu.ErrOutOfMemory
	}
	cmem.Store(out, id)
	return nil
}

// ModuleUnload is cuModuleUnload: its functions are gone, too.
func (d *Driver) ModuleUnload(_ *Thread, id handle.ID) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	m, ok := d.modules.Remove(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	d.funcs.RemoveFunc(func(f *function) bool { return f.mod == m })
	return m.gpu.Close()
}

// ModuleGetFunction is cuModuleGetFunction.
func (d *Driver) ModuleGetFunction(_ *Thread, out cmem.Ptr, id handle.ID, name cmem.Ptr) error {
	if _, err := d.machine(); err != nil {
		return err
	}
	m, ok := d.modules.Get(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	s, ok := cmem.String(name, 4096)
	if !ok {
		return gpu.ErrInvalidValue
	}
	fid, err := d.function(m, s)
	if err != nil {
		return err
	}
	cmem.Store(out, fid)
	return nil
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

// FuncGetAttribute is cuFuncGetAttribute: the pairs use no shared or constant
// memory and no registers to speak of.
func (d *Driver) FuncGetAttribute(_ *Thread, out cmem.Ptr, attr int32, id handle.ID) error {
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
func (d *Driver) LaunchKernel(t *Thread, id handle.ID, gx, gy, gz, bx, by, bz, shared uint32, to handle.ID, params, extra cmem.Ptr) error {
	s, err := d.stream(t, to)
	if err != nil {
		return err
	}
	f, ok := d.funcs.Get(id)
	if !ok {
		return gpu.ErrInvalidHandle
	}
	if gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || params != 0 && extra != 0 {
		return gpu.ErrInvalidValue
	}
	var args []any
	if extra != 0 {
		args, err = packedArgs(f.gpu.Params(), extra)
	} else {
		args, err = pointedArgs(f.gpu.Params(), params)
	}
	if err != nil {
		return err
	}
	return s.gpu.Launch(f.gpu, gpu.Dim{X: gx, Y: gy, Z: gz}, gpu.Dim{X: bx, Y: by, Z: bz}, args...)
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
// at a multiple of its size.
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
