package cufileapi

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// Stream I/O happens in the C half of the library (shim/async.c), which knows the
// program's CUDA. Here is what needs no stream: whether the call may go on.

const streamFlags = 1 | 2 | 4 | 8 // offsets and size are fixed, everything is aligned

// StreamRegister is cuFileStreamRegister. There is nothing to prepare.
func (a *API) StreamRegister(stream handle.ID, flags uint32) error {
	if _, err := a.driver(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if flags&^streamFlags != 0 || a.streams[stream] {
		return &cufile.Error{Op: "register", Object: "stream", Code: cufile.InvalidValue, Err: fmt.Errorf("flags %#x, registered before: %t", flags, a.streams[stream])}
	}
	a.streams[stream] = true
	return nil
}

// StreamDeregister is cuFileStreamDeregister.
func (a *API) StreamDeregister(stream handle.ID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.streams[stream] {
		return &cufile.Error{Op: "deregister", Object: "stream", Code: cufile.InvalidValue, Err: errors.New("it is not registered")}
	}
	delete(a.streams, stream)
	return nil
}

// ReadAsync is cuFileReadAsync, as far as it can be refused at once.
func (a *API) ReadAsync(id handle.ID, _, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.mayGoOn(id, size, off, bufOff, done, stream)
}

// WriteAsync is cuFileWriteAsync.
func (a *API) WriteAsync(id handle.ID, _, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.mayGoOn(id, size, off, bufOff, done, stream)
}

// mayGoOn looks at the arguments. Pointers that lead nowhere fault here, where that
// is a code.
func (a *API) mayGoOn(id handle.ID, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	if id == 0 {
		return cufile.InvalidValue
	}
	if _, ok := a.files.Get(id); !ok {
		return cufile.HandleNotRegistered
	}
	for _, p := range []cmem.Ptr{size, off, bufOff} {
		cmem.Probe(p)
	}
	cmem.Touch(done)
	if a.real {
		return checkStream(stream)
	}
	return nil
}

// lastDefault is the last of the numbers of default streams: NULL, the legacy
// one and that of the thread.
const lastDefault = 2

// checkStream rejects an invalid stream. NVIDIA's are pointers, which libcuda
// follows without a check.
func checkStream(stream handle.ID) (err error) {
	if stream <= lastDefault {
		return nil
	}
	defer func() {
		if recover() != nil {
			err = &cufile.Error{Op: "wait for", Object: fmt.Sprintf("stream %#x", uint64(stream)), Code: cufile.CUDADriverError, Err: gpu.ErrInvalidHandle}
		}
	}()
	cmem.Probe(cmem.Ptr(stream))
	return nil
}
