//go:build linux && (amd64 || arm64) && !nodl

package dl

import (
	"cmp"
	"errors"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// maxArgs is the largest number of arguments. cuLaunchKernel needs 11, more than
// any other function that Culvert calls.
const maxArgs = 12

// frames are argument lists. Call copies its arguments to one, so that they stay
// on the caller's stack; passed to purego they would be allocated on every call.
var frames = sync.Pool{New: func() any { return new([maxArgs]uintptr) }}

// Call calls f and returns its result.
func (f Func) Call(args ...uintptr) uintptr {
	frame := frames.Get().(*[maxArgs]uintptr)
	n := copy(frame[:], args)
	if n < len(args) {
		panic("dl: too many arguments")
	}
	r, _, _ := purego.SyscallN(uintptr(f), frame[:n]...)
	frames.Put(frame)
	return r
}

// errnoLocation returns the address of the calling thread's errno. It is part of
// libc, which every program with a loader has.
var errnoLocation = sync.OnceValue(func() Func {
	p, err := purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location")
	if err != nil {
		panic("dl: libc without __errno_location: " + err.Error())
	}
	return Func(p)
})

// CallErrno calls f and returns its result and errno, which is valid only if f's
// documentation says so. errno belongs to the thread, so the goroutine is locked
// to it. Go's own system calls do not change libc's errno.
func (f Func) CallErrno(args ...uintptr) (uintptr, syscall.Errno) {
	location := errnoLocation()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	errno := int32At(location.Call())
	*errno = 0
	r := f.Call(args...)
	return r, syscall.Errno(*errno)
}

// int32At is the C int at an address that a C function returned. The conversion
// through memory avoids a false warning of vet.
func int32At(address uintptr) *int32 { return *(**int32)(unsafe.Pointer(&address)) }

// Callback makes a C function with one word as argument that calls fn, on any
// thread. It cannot be freed, and there are at most 2000: make one per purpose
// and distinguish calls by the word.
func Callback(fn func(uintptr)) Func {
	return Func(purego.NewCallback(func(arg uintptr) uintptr {
		fn(arg)
		return 0
	}))
}

// Close unloads the library, unless it is still used elsewhere.
func (l *Library) Close() error {
	runtime.LockOSThread() // dlerror belongs to the thread
	defer runtime.UnlockOSThread()
	if err := purego.Dlclose(l.handle); err != nil {
		return errors.New("dlclose " + l.name + ": " + err.Error())
	}
	return nil
}

func load(name string, flags int) (uintptr, error) {
	runtime.LockOSThread() // dlerror belongs to the thread
	defer runtime.UnlockOSThread()
	return purego.Dlopen(name, flags)
}

func (l *Library) lookup(name string) Func {
	runtime.LockOSThread() // purego reads dlerror after a miss
	defer runtime.UnlockOSThread()
	p, err := purego.Dlsym(l.handle, name)
	if err != nil {
		return 0
	}
	return Func(p)
}

// rtldDILinkMap is the dlinfo request for a library's struct link_map, whose
// second word is l_name (glibc's dlfcn.h and link.h).
const rtldDILinkMap = 2

// Path is the file of the library, or its name if the loader does not report it.
func (l *Library) Path() string {
	dlinfo, err := purego.Dlsym(purego.RTLD_DEFAULT, "dlinfo")
	if err != nil {
		return l.name
	}
	link := new(*[2]*byte)
	if Func(dlinfo).Call(l.handle, rtldDILinkMap, Ref(link)) != 0 || *link == nil {
		return l.name
	}
	return cmp.Or(String((*link)[1]), l.name)
}
