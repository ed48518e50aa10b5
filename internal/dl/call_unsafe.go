//go:build linux && (amd64 || arm64) && !nodl

package dl

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// maxArgs is the most that Call passes on; cuLaunchKernel, with 11, needs the
// most of all that Culvert calls.
const maxArgs = 12

// frames are argument lists. The variadic list of Call stays on its caller's
// stack because it is copied here; handed to purego itself it would be
// allocated on every call.
var frames = sync.Pool{New: func() any { return new([maxArgs]uintptr) }}

// Call calls f and returns its result.
func (f Func) Call(args ...uintptr) uintptr {
	r, _ := f.Call2(args...)
	return r
}

// Call2 calls f and returns both result registers, for structs of up to 16
// bytes.
func (f Func) Call2(args ...uintptr) (uintptr, uintptr) {
	frame := frames.Get().(*[maxArgs]uintptr)
	n := copy(frame[:], args)
	if n < len(args) {
		panic("dl: too many arguments")
	}
	r1, r2, _ := purego.SyscallN(uintptr(f), frame[:n]...)
	frames.Put(frame)
	return r1, r2
}

// errnoLocation gives the calling thread's errno. It is found once: it is part
// of libc, which every program with a loader has.
var errnoLocation = sync.OnceValue(func() Func {
	p, err := purego.Dlsym(purego.RTLD_DEFAULT, "__errno_location")
	if err != nil {
		panic("dl: libc without __errno_location: " + err.Error())
	}
	return Func(p)
})

// CallErrno calls f and returns its result and the errno that it left, which
// means something only where f's documentation says so. errno belongs to the
// thread, so the goroutine keeps it from before the call to after the reading;
// Go's own system calls do not touch libc's errno.
func (f Func) CallErrno(args ...uintptr) (uintptr, syscall.Errno) {
	location := errnoLocation()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	errno := int32At(location.Call())
	*errno = 0
	r := f.Call(args...)
	return r, syscall.Errno(*errno)
}

// int32At is the C int at an address that a C function returned. The detour
// through memory keeps vet from taking it for the address of a Go object.
func int32At(address uintptr) *int32 { return *(**int32)(unsafe.Pointer(&address)) }

// Callback makes a C function of one word that calls fn, from any thread. It
// can never be freed and there are 2000 at most: make one per purpose and
// tell calls apart by the word.
func Callback(fn func(uintptr)) Func {
	return Func(purego.NewCallback(func(arg uintptr) uintptr {
		fn(arg)
		return 0
	}))
}

// Close unloads the library unless something else holds it.
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

// rtldDILinkMap asks dlinfo for a library's struct link_map, whose second word
// is l_name. From glibc's dlfcn.h and link.h.
const rtldDILinkMap = 2

// Path is the file that the library was loaded from, or its name where the
// loader does not tell.
func (l *Library) Path() string {
	dlinfo, err := purego.Dlsym(purego.RTLD_DEFAULT, "dlinfo")
	if err != nil {
		return l.name
	}
	link := new(*[2]*byte)
	if Func(dlinfo).Call(l.handle, rtldDILinkMap, Ref(link)) != 0 || *link == nil {
		return l.name
	}
	if path := String((*link)[1]); path != "" {
		return path
	}
	return l.name
}
