package hold

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// ErrServed reports that another process listens on the socket.
var ErrServed = errors.New("another process serves a model there")

// Listen creates a server's socket. Only its user may connect. Listen replaces a
// socket that nothing listens on, but no live one, and nothing that is not a socket.
// Closing the listener removes the socket.
func Listen(ctx context.Context, path string) (*net.UnixListener, error) {
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
	return l.(*net.UnixListener), nil
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
		return fmt.Errorf("%s: %w", path, ErrServed)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("connect to existing socket: %w", err)
}
