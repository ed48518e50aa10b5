package cufileapi

import (
	"errors"
	"fmt"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// Stream I/O runs in the C half of the library (shim/async.c), which has the
// program's CUDA. The methods here only check the arguments.

const streamFlags = 1 | 2 | 4 | 8 // offsets and size are fixed, all are aligned

// StreamRegister is cuFileStreamRegister. It only records the stream.
func (a *API) StreamRegister(stream handle.ID, flags uint32) error {
	if _, err := a.driver(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if flags&^streamFlags != 0 || a.streams[stream] {
		return &cufile.Error{Op: "register", Object: "stream", Code: cufile.InvalidValue, Err: fmt.Errorf("flags %#x must be within %#x, and the stream not registered (it is: %t)", flags, streamFlags, a.streams[stream])}
	}
	a.streams[stream] = true
	return nil
}

// StreamDeregister is cuFileStreamDeregister.
func (a *API) StreamDeregister(stream handle.ID) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.streams[stream] {
		return &cufile.Error{Op: "deregister", Object: "stream", Code: cufile.InvalidValue, Err: errors.New("not registered")}
	}
	delete(a.streams, stream)
	return nil
}

// ReadAsync checks the arguments of cuFileReadAsync.
func (a *API) ReadAsync(id handle.ID, _, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.checkAsync(id, size, off, bufOff, done, stream)
}

// WriteAsync checks those of cuFileWriteAsync.
func (a *API) WriteAsync(id handle.ID, _, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
	return a.checkAsync(id, size, off, bufOff, done, stream)
}

// checkAsync checks the arguments. A wild pointer faults here, where a fault
// becomes a code.
func (a *API) checkAsync(id handle.ID, size, off, bufOff, done cmem.Ptr, stream handle.ID) error {
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
