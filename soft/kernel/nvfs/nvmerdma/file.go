package nvmerdma

import (
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/nvme"
)

// A file is a namespace of the target, whose bytes are in a file that the process has open,
// during one request. Commands that arrive later fail: a target that has lost its host may
// still execute one.
type file struct {
	id uint32 // of the namespace

	use     sync.RWMutex // held for reading during an access
	serving bool         // a request
	fd      int

	mu    sync.Mutex
	cause error
	lies  map[int64]nvme.Lie // by offset, about one command
}

// admit sets the descriptor, which must stay open until dismiss.
func (f *file) admit(fd int) {
	f.use.Lock()
	defer f.use.Unlock()
	f.serving, f.fd, f.cause = true, fd, nil
}

// dismiss waits for accesses, ends the use of the descriptor and returns the file's error,
// which tells more than a status.
func (f *file) dismiss() error {
	f.use.Lock()
	defer f.use.Unlock()
	f.serving = false
	return f.cause
}

// lie has the next command at an offset deliver something else.
func (f *file) lie(off int64, l nvme.Lie) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lies == nil {
		f.lies = map[int64]nvme.Lie{}
	}
	f.lies[off] = l
}

// falsify changes the bytes of a command that is a lie.
func (f *file) falsify(p []byte, off int64) {
	f.mu.Lock()
	l, ok := f.lies[off]
	delete(f.lies, off)
	f.mu.Unlock()
	if ok {
		nvme.Falsify(l, p, blockSize)
	}
}

// fail keeps the file's error.
func (f *file) fail(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cause = err
	return err
}

var errNoRequest = errors.New("the request of this command has ended")

// ReadAt implements Backing. Behind the end of the file are zeros.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.use.RLock()
	defer f.use.RUnlock()
	if !f.serving {
		return 0, errNoRequest
	}
	for done := 0; done < len(p); {
		n, err := unix.Pread(f.fd, p[done:], off+int64(done))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return done, f.fail(err)
		}
		if done += n; n == 0 || n%blockSize != 0 {
			clear(p[done:]) // if the file grew now, the rest would not be aligned
			break
		}
	}
	f.falsify(p, off)
	return len(p), nil
}

// WriteAt implements Backing.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.use.RLock()
	defer f.use.RUnlock()
	if !f.serving {
		return 0, errNoRequest
	}
	f.falsify(p, off)
	for done := 0; done < len(p); {
		n, err := unix.Pwrite(f.fd, p[done:], off+int64(done))
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = syscall.EIO
		}
		if err != nil {
			return done, f.fail(err)
		}
		done += n
	}
	return len(p), nil
}

// Sync implements Backing.
func (f *file) Sync() error {
	f.use.RLock()
	defer f.use.RUnlock()
	if !f.serving {
		return errNoRequest
	}
	return unix.Fdatasync(f.fd)
}
