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

// ErrHeld says that another process listens on the socket.
var ErrHeld = errors.New("another process holds a model there")

// Listen makes the socket of a holder. Only its user may connect. A socket that
// a dead holder left behind is replaced; a live one, or anything that is not a
// socket, is not. Closing the listener removes the socket.
func Listen(path string) (*net.UnixListener, error) {
	// Two holders that start at once must not each take the other for dead.
	unlock, err := atomicfile.LockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clearStale(path); err != nil {
		return nil, err
	}
	// Linux gives the file the mode of the socket, if that is set before bind:
	// there is no moment at which others could connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, os.NewSyscallError("fchmod", failed))
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if errors.Is(err, unix.EINVAL) {
		return nil, fmt.Errorf("%w: the path of a socket has at most 107 bytes, this has %d", err, len(path))
	}
	if err != nil {
		return nil, err
	}
	return l.(*net.UnixListener), nil
}

// clearStale removes a socket that nobody listens on.
func clearStale(path string) error {
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
		return fmt.Errorf("%s: %w", path, ErrHeld)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("is anybody there? %w", err)
}
