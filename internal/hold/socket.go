package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// ErrServed reports that another process listens on the socket.
var ErrServed = errors.New("another process serves a model there")

// Listen creates a server's socket. Only its user may connect. Listen replaces a
// socket that nothing listens on, but no live one, and nothing that is not a socket.
// Closing the listener removes the socket.
func Listen(ctx context.Context, path string) (*Listener, error) {
	// Two servers that start at once must not each take the other's socket for stale.
	unlock, err := atomicfile.LockDir(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// Linux gives the file the mode that the socket has before bind, so there is no
	// moment at which other users could connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, os.NewSyscallError("fchmod", failed))
	}}
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%w: the path of a socket must have at most 107 bytes, this has %d", err, len(path))
	}
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // it may be another server's by then
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Listener{UnixListener: l.(*net.UnixListener), path: path, made: made}, nil
}

// A Listener is a server's socket.
type Listener struct {
	*net.UnixListener
	path  string
	made  fs.FileInfo // of the socket
	close sync.Once
}

// lockWait is how long Close waits for a server that starts. A socket that stays is
// replaced by the next server.
const lockWait = time.Second

// Close stops listening and removes the socket, unless it was replaced.
func (l *Listener) Close() (err error) {
	l.close.Do(func() {
		// While the socket is open its inode number is not used for another one.
		err = errors.Join(l.remove(), l.UnixListener.Close())
	})
	return err
}

func (l *Listener) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	unlock, err := atomicfile.LockDir(ctx, filepath.Dir(l.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	now, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(l.made, now) {
		return nil
	}
	return errors.Join(err, os.Remove(l.path))
}

// removeStale removes a socket that nothing listens on.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s: %w and is not a socket", path, fs.ErrExist)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		fallthrough
	case errors.Is(err, unix.EAGAIN): // so many clients wait that no more may
		return fmt.Errorf("%s: %w", path, ErrServed)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("connect to existing socket: %w", err)
}
