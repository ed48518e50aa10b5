package cufileapi

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"structs"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
)

// A Caller calls functions of the program: those of a CUfileFSOps_t.
type Caller interface {
	// FSType calls fs_type, which returns a string.
	FSType(fn, handle cmem.Ptr) cmem.Ptr
	// FSTransfer calls read or write, without RDMA. The result is the number of bytes,
	// or a negative errno.
	FSTransfer(fn, handle cmem.Ptr, p []byte, off int64) int64
}

// fsOps is CUfileFSOps_t.
type fsOps struct {
	_                  structs.HostLayout
	FSType             cmem.Ptr
	RDMADeviceList     cmem.Ptr // these two may be NULL: they serve RDMA only
	RDMADevicePriority cmem.Ptr
	Read, Write        cmem.Ptr
}

// A fileSystem is a file of a file system in user space. The program may change its
// table after the registration: this is a copy.
type fileSystem struct {
	call   Caller
	ops    fsOps
	handle cmem.Ptr
	name   string
}

// maxFSType is longer than any name of a file system.
const maxFSType = 64

// newFileSystem checks the table. NVIDIA's library refuses a NULL one with 5008.
func newFileSystem(call Caller, handle, table cmem.Ptr) (*fileSystem, error) {
	fail := func(code cufile.Code, text string) error {
		return &cufile.Error{Op: "register", Object: "user-space file system", Code: code, Err: errors.New(text)}
	}
	if table == 0 {
		return nil, fail(cufile.IONotSupported, "fs_ops is NULL")
	}
	s := &fileSystem{call: call, ops: cmem.Load[fsOps](table), handle: handle}
	if s.ops.FSType == 0 || s.ops.Read == 0 || s.ops.Write == 0 {
		return nil, fail(cufile.InvalidValue, "fs_type, read or write of fs_ops is NULL")
	}
	text := call.FSType(s.ops.FSType, handle)
	if text == 0 {
		return nil, fail(cufile.InvalidFileType, "fs_type returned NULL")
	}
	kind, ok := cmem.String(text, maxFSType)
	if unprintable := func(r rune) bool { return r <= ' ' || r > '~' }; !ok || kind == "" || strings.ContainsFunc(kind, unprintable) {
		return nil, fail(cufile.InvalidFileType, fmt.Sprintf("fs_type must return 1 to %d printable ASCII characters", maxFSType))
	}
	s.name = fmt.Sprintf("%s handle %#x", kind, uint64(handle))
	return s, nil
}

// Name names the file system and the file's handle.
func (s *fileSystem) Name() string { return s.name }

// ReadAt calls read until p is full or the file ends.
func (s *fileSystem) ReadAt(p []byte, off int64) (int, error) {
	return s.all("read", s.ops.Read, p, off, io.EOF)
}

// WriteAt calls write until all of p is written.
func (s *fileSystem) WriteAt(p []byte, off int64) (int, error) {
	return s.all("write", s.ops.Write, p, off, fmt.Errorf("write of fs_ops returned 0: %w", unix.EIO))
}

// all calls fn until it has moved all of p. none is the error if it moves nothing.
func (s *fileSystem) all(op string, fn cmem.Ptr, p []byte, off int64, none error) (done int, err error) {
	for done < len(p) {
		n := s.call.FSTransfer(fn, s.handle, p[done:], off+int64(done))
		switch {
		case n == -int64(unix.EINTR): // again, as with a file
		case n < 0:
			return done, negated(n)
		case n == 0:
			return done, none
		case n > int64(len(p)-done):
			return done, fmt.Errorf("%s of fs_ops returned %d for %d bytes: %w", op, n, len(p)-done, unix.EIO)
		default:
			done += int(n)
		}
	}
	return done, nil
}

// negated is the errno of a negative result. The system has none above 4095.
func negated(n int64) unix.Errno {
	if n < -4095 {
		return unix.EIO
	}
	return unix.Errno(-n)
}
