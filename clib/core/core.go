// Command core is libculvert.so, the Go core of the C libraries: built with
// -buildmode=c-shared and loaded by their shims in the first call. A process has one
// Go core, one Go runtime and one machine, whatever libraries it uses.
//
// It only passes calls between C and Go. Package dispatch and the packages below
// it implement the functions and are tested without C.
package main

/*
#include "core.h"
extern void culvert_call_host(uintptr_t fn, uintptr_t user);
extern void culvert_call_stream(uintptr_t fn, uintptr_t stream, int status, uintptr_t user);
extern void culvert_call_log(uintptr_t fn, uintptr_t user, int level, void *message, size_t n);
extern uintptr_t culvert_call_fs_type(uintptr_t fn, uintptr_t handle);
extern int64_t culvert_call_fs_transfer(uintptr_t fn, uintptr_t handle, void *buf, size_t n, int64_t off);
*/
import "C"

import (
	"os"
	"unsafe"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/dispatch"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/lease"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/env"
	_ "github.com/culvert-io/culvert/object" // s3:// and https:// in Python
)

func main() {} // c-shared libraries need one

// C and Go must agree on the state of a thread, and on leases.
var (
	_ [unsafe.Sizeof(C.struct_culvert_thread{})]byte      = [unsafe.Sizeof(softcuda.Thread{})]byte{}
	_ [unsafe.Sizeof(C.culvert_lease_slots)]byte          = [unsafe.Sizeof(lease.Slots{})]byte{}
	_ [unsafe.Offsetof(C.struct_culvert_lease{}.fd)]byte  = [unsafe.Offsetof(lease.Slot{}.FD)]byte{}
	_ [unsafe.Offsetof(C.struct_culvert_lease{}.ops)]byte = [unsafe.Offsetof(lease.Slot{}.Ops)]byte{}
)

var core = newCore()

// newCore makes the Go core. CULVERT_LOG=errors logs every failed call to standard
// error.
func newCore() *dispatch.Core {
	c := dispatch.New(caller{})
	c.File.PublishLeases((*lease.Slots)(unsafe.Pointer(&C.culvert_lease_slots)))
	c.File.Variable = variable
	c.CUDA.MapsExports = func() bool { return bool(C.culvert_maps_exports()) }
	if env.Get("CULVERT_LOG") == "errors" {
		c.Log = os.Stderr
	}
	return c
}

// variable is the value that an environment variable of the program has now. Go has a copy
// of the environment in which the core was loaded.
func variable(name string) (value string, ok bool) {
	text := append([]byte(name), 0)
	found := C.culvert_variable((*C.char)(unsafe.Pointer(unsafe.SliceData(text))))
	return C.GoString(found), found != nil
}

// culvertBind is a thread's first call. It gives the thread's goroutine, which it
// keeps, a stack with room for a signal handler of the program: one without
// SA_ONSTACK runs on the current stack. The build disables shrinking of stacks.
//
//export culvertBind
func culvertBind() {
	var room [headroom]byte
	touch(&room)
}

const headroom = 64 << 10

//go:noinline
func touch(room *[headroom]byte) { room[0] = 1 }

//export culvertCall
func culvertCall(fn C.int, thread *C.struct_culvert_thread, args unsafe.Pointer, sysErr *C.int32_t) C.int64_t {
	t := (*softcuda.Thread)(unsafe.Pointer(thread))
	v, e := core.Call(int(fn), t, (*dispatch.Words)(args))
	*sysErr = C.int32_t(e)
	return C.int64_t(v)
}

//export culvertLeave
func culvertLeave() { core.Leave() }

// A caller calls functions of the program.
type caller struct{}

func (caller) HostFunc(fn, user cmem.Ptr) {
	C.culvert_call_host(C.uintptr_t(fn), C.uintptr_t(user))
}

func (caller) StreamCallback(fn cmem.Ptr, stream handle.ID, status gpu.Code, user cmem.Ptr) {
	C.culvert_call_stream(C.uintptr_t(fn), C.uintptr_t(stream), C.int(status), C.uintptr_t(user))
}

func (caller) LogCallback(fn, user cmem.Ptr, level int32, message string) {
	text := append([]byte(message), 0)
	C.culvert_call_log(C.uintptr_t(fn), C.uintptr_t(user), C.int(level), unsafe.Pointer(unsafe.SliceData(text)), C.size_t(len(message)))
}

func (caller) FSType(fn, fs cmem.Ptr) cmem.Ptr {
	return cmem.Ptr(C.culvert_call_fs_type(C.uintptr_t(fn), C.uintptr_t(fs)))
}

func (caller) FSTransfer(fn, fs cmem.Ptr, p []byte, off int64) int64 {
	return int64(C.culvert_call_fs_transfer(C.uintptr_t(fn), C.uintptr_t(fs), unsafe.Pointer(unsafe.SliceData(p)), C.size_t(len(p)), C.int64_t(off)))
}
