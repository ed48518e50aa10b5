package dispatch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/cufileapi"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A caller runs Go functions in place of C functions of the program.
type caller map[cmem.Ptr]func(user cmem.Ptr)

func (c caller) HostFunc(fn, user cmem.Ptr) { c[fn](user) }

// The C functions of user-space file systems are tested by a C program.
func (caller) FSType(cmem.Ptr, cmem.Ptr) cmem.Ptr                 { return 0 }
func (caller) FSTransfer(cmem.Ptr, cmem.Ptr, []byte, int64) int64 { return 0 }

func (c caller) LogCallback(fn, user cmem.Ptr, _ int32, _ string) { c[fn](user) }

func (c caller) StreamCallback(fn cmem.Ptr, _ handle.ID, _ gpu.Code, user cmem.Ptr) { c[fn](user) }

// A program acts as a C program: a Go core and one thread.
type program struct {
	t      *testing.T
	core   *Core
	thread *softcuda.Thread
	log    bytes.Buffer
}

func start(t *testing.T) *program {
	t.Helper()
	return startWith(t, nil)
}

func startWith(t *testing.T, call caller) *program {
	t.Helper()
	t.Setenv("CULVERT_MACHINE", "soft")
	if os.Getenv("CULVERT_SOFT") == "" {
		t.Setenv("CULVERT_SOFT", "memory=64M,poison=1")
	}
	p := &program{t: t, core: New(call), thread: new(softcuda.Thread)}
	p.core.Log = &p.log
	return p
}

// call calls a C function by its name.
func (p *program) call(name string, args ...uint64) (int64, int32) {
	p.t.Helper()
	for i := range entries {
		if entries[i].name == name {
			var w Words
			copy(w[:], args)
			return p.core.Call(i, p.thread, &w)
		}
	}
	p.t.Fatalf("there is no %s", name)
	return 0, 0
}

// must calls a function that has to succeed.
func (p *program) must(name string, args ...uint64) {
	p.t.Helper()
	if v, _ := p.call(name, args...); v != 0 {
		p.t.Fatalf("%s = %d\n%s", name, v, p.log.String())
	}
}

func (p *program) want(code int64, name string, args ...uint64) {
	p.t.Helper()
	if v, _ := p.call(name, args...); v != code {
		p.t.Errorf("%s = %d, want %d", name, v, code)
	}
}

func out[T any](v *T) uint64 { return uint64(cmem.PtrTo(v)) }

func TestEntriesHaveNames(t *testing.T) {
	if len(entries) != len(cufileEntries)+len(cudaEntries)+len(cudartEntries)+len(verbsEntries)+len(devEntries)+len(gdrapiEntries) || entries[0].name != "cuFileDriverOpen" {
		t.Error("the entries are not numbered as the shims number them")
	}
	for _, e := range entries {
		if e.call == nil || e.returns == nil {
			t.Errorf("%s answers nothing", e.name)
		}
	}
}

func TestNoSuchFunction(t *testing.T) {
	p := start(t)
	for _, fn := range []int{-1, len(entries), 1 << 30} {
		if v, errno := p.core.Call(fn, p.thread, new(Words)); v != -1 || errno != int32(unix.ENOSYS) {
			t.Errorf("function %d = %d, errno %d", fn, v, errno)
		}
	}
}

// TestPanic: after a panic in Go, C gets a code of the library it called.
func TestPanic(t *testing.T) {
	p := start(t)
	for _, tt := range []struct {
		like    string
		value   int64
		errno   int32
		wild    int64
		wildErr int32
	}{
		{"cuInit", int64(gpu.ErrUnknown), 0, int64(gpu.ErrInvalidValue), 0},
		{"cudaMalloc", int64(gpu.ErrUnknown), 0, int64(gpu.ErrInvalidValue), 0},
		{"cuFileDriverOpen", int64(cufile.InternalError), 0, int64(cufile.InvalidValue), 0},
		{"cuFileRead", -1, int32(unix.EFAULT), -1, int32(unix.EFAULT)},
		{"cuFileHandleDeregister", 0, 0, 0, 0},
	} {
		var like entry
		for _, e := range entries {
			if e.name == tt.like {
				like = e
			}
		}
		for _, crash := range []struct {
			call  func(*Core, softcuda.Call, *Words) (int64, error)
			text  string
			value int64
			errno int32
		}{
			{func(*Core, softcuda.Call, *Words) (int64, error) { panic("a mistake") }, "a mistake", tt.value, tt.errno},
			{func(*Core, softcuda.Call, *Words) (int64, error) {
				cmem.Store(cmem.Ptr(0x10000), uint64(1))
				return 0, nil
			}, "0x10000", tt.wild, tt.wildErr},
		} {
			n, err := p.core.guarded(&entry{call: crash.call}, p.thread, nil)
			value, errno := like.returns.make(p.core, p.thread, n, err)
			if value != crash.value || errno != crash.errno || !strings.Contains(err.Error(), crash.text) {
				t.Errorf("%s after %q: %d, errno %d, %v", tt.like, crash.text, value, errno, err)
			}
		}
	}
	if p.thread.LastError != int32(gpu.ErrInvalidValue) {
		t.Errorf("the runtime remembers %d", p.thread.LastError)
	}
}

// TestNeeds: what the table says that a function needs is checked before the
// call, a NULL first.
func TestNeeds(t *testing.T) {
	p := start(t)
	value := new(uint64)
	const wrong = 1 << 40
	p.want(int64(gpu.ErrInvalidValue), "cuDeviceGetCount", 0)
	p.want(int64(gpu.ErrNotInitialized), "cuDeviceGetCount", out(value))
	p.want(int64(gpu.ErrNotInitialized), "cuStreamQuery", wrong)
	p.must("cuInit", 0)
	p.want(int64(gpu.ErrInvalidDevice), "cuDeviceGetName", out(value), 8, 7)
	p.want(int64(gpu.ErrInvalidContext), "cuCtxGetFlags", out(value))
	p.want(int64(gpu.ErrInvalidContext), "cuStreamQuery", 0)
	p.want(int64(gpu.ErrInvalidHandle), "cuStreamQuery", wrong)
	p.want(int64(gpu.ErrInvalidHandle), "cuEventQuery", wrong)
	p.must("cudaEventCreate", out(value)) // the runtime makes a context current
	p.must("cuCtxGetFlags", out(value))
	p.must("cuStreamQuery", 0)
	p.want(int64(cufile.InvalidValue), "cuFileGetVersion", 0)
}

func TestLogSaysWhatCodesDoNot(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	var mem gpu.Addr
	p.want(int64(gpu.ErrOutOfMemory), "cuMemAlloc_v2", out(&mem), 1<<40)
	if got := p.log.String(); !strings.Contains(got, "cuMemAlloc_v2: ") || !strings.Contains(got, "bytes free") {
		t.Errorf("the log says %q", got)
	}
}

func TestTransferErrno(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int32
	}{
		{unix.EINVAL, int32(unix.EINVAL)},
		{&cufile.Error{Code: cufile.IOError, Err: unix.ENOSPC}, int32(unix.ENOSPC)},
		{&cufile.Error{Code: cufile.IOError}, int32(unix.EIO)},
		{&cufile.Error{Code: cufile.CUDADriverError, Err: gpu.ErrIllegalAddress}, int32(unix.EIO)},
		{&cufile.Error{Code: cufile.CUDAPointerRangeError}, int32(unix.EIO)},
		{&cufile.Error{Code: cufile.CUDAPointerInvalid, Err: fmt.Errorf("%w: %w", route.ErrFreed, unix.EBUSY)}, 5012},
		{cufile.HandleNotRegistered, 5027},
		{&cufile.Error{Code: cufile.InvalidMappingRange}, 5017},
	} {
		if got := cufileapi.Errno(tt.err); got != tt.want {
			t.Errorf("errno of %v is %d, want %d", tt.err, got, tt.want)
		}
	}
}

// TestCUDACodeTravels: if CUDA is the cause, both codes are returned.
func TestCUDACodeTravels(t *testing.T) {
	for code, want := range map[cufile.Code]int64{cufile.CUDADriverError: 5011 | 100<<32, cufile.DeviceNotFound: 5029} {
		if v, _ := makeFileStatus(nil, nil, 0, &cufile.Error{Code: code, Err: gpu.ErrNoDevice}); v != want {
			t.Errorf("%v is %#x, want %#x", code, v, want)
		}
	}
}

// TestOneMachine: the software CUDA and cuFile share a machine, whichever of the two
// is used first.
func TestOneMachine(t *testing.T) {
	for _, first := range []string{"cuFileDriverOpen", "cuInit"} {
		p := start(t)
		p.must(first)
		path := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(path, []byte("one machine"), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var mem gpu.Addr
		p.must("cudaMalloc", out(&mem), 4096)
		descr := [3]uint64{1, uint64(f.Fd()), 0}
		var h handle.ID
		p.must("cuFileHandleRegister", out(&h), out(&descr))
		p.must("cuFileBufRegister", uint64(mem), 4096, 0)
		if n, errno := p.call("cuFileRead", uint64(h), uint64(mem), 4096, 4, 0); n != 7 {
			t.Fatalf("read %d, errno %d\n%s", n, errno, p.log.String())
		}
		var text [7]byte
		p.must("cudaMemcpy", out(&text), uint64(mem), 7, 2)
		if string(text[:]) != "machine" {
			t.Errorf("read %q", text)
		}
		p.must("cuFileBufDeregister", uint64(mem))
		p.call("cuFileHandleDeregister", uint64(h))
		p.must("cudaFree", uint64(mem))
	}
}

// TestFileHandles: a handle ends with its deregistration, and all of them with
// the last close of the driver.
func TestFileHandles(t *testing.T) {
	p := start(t)
	open := func() (handle.ID, int64) {
		f, err := os.Create(filepath.Join(t.TempDir(), "data"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		descr, h := [3]uint64{1, uint64(f.Fd()), 0}, new(handle.ID)
		v, _ := p.call("cuFileHandleRegister", out(h), out(&descr))
		return *h, v
	}
	var buf [16]byte
	write := func(h handle.ID) (int64, int32) {
		return p.call("cuFileWrite", uint64(h), out(&buf), 16, 0, 0)
	}
	a, v := open()
	if n, errno := write(a); v != 0 || n != 16 {
		t.Fatalf("register %d, write %d, errno %d", v, n, errno)
	}
	b, _ := open()
	p.call("cuFileHandleDeregister", uint64(a))
	if n, errno := write(a); n != -1 || errno != int32(cufile.HandleNotRegistered) {
		t.Errorf("write after deregistration = %d, errno %d", n, errno)
	}
	if n, _ := p.call("cuFileUseCount"); n != 1 {
		t.Errorf("use count %d after registrations alone", n)
	}
	p.must("cuFileDriverClose_v2")
	if n, errno := write(b); n != -1 || errno != int32(cufile.HandleNotRegistered) {
		t.Errorf("write after the last close = %d, errno %d", n, errno)
	}
	p.must("cuFileDriverOpen")
	if n, errno := write(b); n != -1 || errno != int32(cufile.HandleNotRegistered) {
		t.Errorf("write with a handle of before = %d, errno %d", n, errno)
	}
}

func TestRealMachineRefusesSoftCUDA(t *testing.T) {
	p := start(t)
	t.Setenv("CULVERT_MACHINE", "real")
	p.want(int64(gpu.ErrNoDevice), "cuInit", 0)
	if !strings.Contains(p.log.String(), "CULVERT_MACHINE=real") {
		t.Errorf("the log says %q", p.log.String())
	}
}

// TestContextsArePerThread: each thread has its own current context.
func TestContextsArePerThread(t *testing.T) {
	p := start(t)
	p.must("cuInit", 0)
	var ctx, cur handle.ID
	p.must("cuCtxCreate_v2", out(&ctx), 0, 0)
	other := &program{t: t, core: p.core, thread: new(softcuda.Thread)}
	other.must("cuCtxGetCurrent", out(&cur))
	if cur != 0 {
		t.Errorf("another thread has %#x current", cur)
	}
	other.must("cuCtxSetCurrent", uint64(ctx))
	p.must("cuCtxDestroy_v2", uint64(ctx))
	var a gpu.Addr
	other.want(int64(gpu.ErrContextDestroyed), "cuMemAlloc_v2", out(&a), 16)
}

func TestContextStackIsBounded(t *testing.T) {
	p := start(t)
	p.must("cuInit", 0)
	var ctx handle.ID
	p.must("cuDevicePrimaryCtxRetain", out(&ctx), 0)
	n, v := 0, int64(0)
	for ; n < 1000 && v == 0; n++ {
		v, _ = p.call("cuCtxPushCurrent_v2", uint64(ctx))
	}
	n--
	if v != int64(gpu.ErrOutOfMemory) {
		t.Errorf("after %d contexts: %d", n, v)
	}
	for range n {
		p.must("cuCtxPopCurrent_v2", 0)
	}
	p.want(int64(gpu.ErrInvalidContext), "cuCtxPopCurrent_v2", 0)
}

// TestDestroyedContext: everything that was created in a context ends with it.
func TestDestroyedContext(t *testing.T) {
	p := start(t)
	p.must("cuInit", 0)
	var ctx, s, e handle.ID
	var mem gpu.Addr
	p.must("cuCtxCreate_v2", out(&ctx), 0, 0)
	p.must("cuStreamCreate", out(&s), 0)
	p.must("cuEventCreate", out(&e), 0)
	p.must("cuMemAlloc_v2", out(&mem), 4096)
	p.must("cuCtxDestroy_v2", uint64(ctx))
	p.want(int64(gpu.ErrInvalidHandle), "cuStreamSynchronize", uint64(s))
	p.want(int64(gpu.ErrInvalidHandle), "cuEventQuery", uint64(e))
	p.want(int64(gpu.ErrInvalidContext), "cuCtxSetCurrent", uint64(ctx))
	p.must("cudaFree", 0)
	p.want(int64(gpu.ErrInvalidValue), "cudaFree", uint64(mem))
}

// TestStaleHandles: released handles are not mistaken for others.
func TestStaleHandles(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	var s, e handle.ID
	p.must("cuStreamCreate", out(&s), 1)
	p.must("cuEventCreate", out(&e), 0)
	p.must("cuStreamDestroy_v2", uint64(s))
	p.must("cuEventDestroy_v2", uint64(e))
	for _, h := range []uint64{uint64(s), uint64(e), 0xdead_beef_0000, 1 << 63} {
		p.want(int64(gpu.ErrInvalidHandle), "cuStreamDestroy_v2", h)
		p.want(int64(gpu.ErrInvalidHandle), "cuEventDestroy_v2", h)
		p.want(int64(gpu.ErrInvalidHandle), "cuStreamSynchronize", h)
		p.want(int64(gpu.ErrInvalidHandle), "cuModuleUnload", h)
		p.want(int64(gpu.ErrInvalidHandle), "cuLaunchKernel", h, 1, 1, 1, 1, 1, 1)
		p.want(int64(gpu.ErrInvalidContext), "cuCtxDestroy_v2", h)
	}
}

// TestFreeAsync: memory freed on a stream is valid for earlier work on it.
func TestFreeAsync(t *testing.T) {
	p := start(t)
	p.must("cudaFree", 0)
	var s handle.ID
	var mem, host gpu.Addr
	p.must("cuStreamCreate", out(&s), 1)
	p.must("cuMemAllocHost_v2", out(&host), 4096)
	p.must("cuMemAllocAsync", out(&mem), 4096, uint64(s))
	p.must("cuMemsetD8Async", uint64(mem), 0x42, 4096, uint64(s))
	p.must("cuMemcpyDtoHAsync_v2", uint64(host), uint64(mem), 4096, uint64(s))
	p.must("cuMemFreeAsync", uint64(mem), uint64(s))
	p.want(int64(gpu.ErrInvalidValue), "cuMemFreeAsync", uint64(mem), uint64(s))
	p.must("cuStreamSynchronize", uint64(s))
	if b := gpu.HostBytes(host, 4096); b[4095] != 0x42 {
		t.Errorf("byte %#x", b[4095])
	}
	p.must("cuMemFreeHost", uint64(host))
}

func TestHostFunctionsRunInOrder(t *testing.T) {
	var mu sync.Mutex
	var got []int
	const fn = 1
	p := startWith(t, caller{fn: func(user cmem.Ptr) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, int(user))
	}})
	p.must("cudaFree", 0)
	for i := range 3 {
		p.must("cuLaunchHostFunc", 0, fn, uint64(i))
	}
	p.must("cuStreamAddCallback", 0, fn, 3)
	p.must("cuCtxSynchronize")
	if !slices.Equal(got, []int{0, 1, 2, 3}) {
		t.Errorf("called %v", got)
	}
}

// TestManyThreads: threads share a Go core, each with its own state.
func TestManyThreads(t *testing.T) {
	p := start(t)
	p.core.Log = nil
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			q := &program{t: t, core: p.core, thread: new(softcuda.Thread)}
			for range 50 {
				mem, h := new(gpu.Addr), new([64]byte)
				if v, _ := q.call("cudaMalloc", out(mem), 64); v != 0 {
					t.Errorf("cudaMalloc = %d", v)
					return
				}
				q.call("cudaMemset", uint64(*mem), 7, 64)
				q.call("cudaMemcpy", out(h), uint64(*mem), 64, 2)
				if h[63] != 7 {
					t.Errorf("byte %d", h[63])
				}
				q.call("cudaFree", uint64(*mem))
			}
		})
	}
	wg.Wait()
}
