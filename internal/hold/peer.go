package hold

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrUser reports that the other side is a process of a user who was not asked for.
var ErrUser = fmt.Errorf("another user: %w", unix.EACCES)

// peer returns the process at the other end of a connection, as the kernel knows it:
// for a client the process that listens.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, os.NewSyscallError("SO_PEERCRED", failed))
}

// checkServer returns an error unless the server is a process of the user. Its memory
// becomes the weights of this process, so it decides what this process computes.
func checkServer(c *net.UnixConn, uid int) error {
	cred, err := peer(c)
	if err == nil && int(cred.Uid) != uid {
		err = fmt.Errorf("the server is process %d of user %d, not of user %d: %w (fix: if you trust that user, save with --from-user %d, or attach(path, user=%d))", cred.Pid, cred.Uid, uid, ErrUser, cred.Uid, cred.Uid)
	}
	return err
}

// checkClient returns an error unless the client is a process of this user or root's.
// The mode of the socket says the same, but can be changed.
func checkClient(c *net.UnixConn) error {
	cred, err := peer(c)
	if err == nil && cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		err = fmt.Errorf("this model is served to user %d only, you are user %d: %w", os.Geteuid(), cred.Uid, ErrUser)
	}
	return err
}

// UserID returns the ID of a user, given as a name or as a number. The empty text is
// this user.
func UserID(s string) (int, error) {
	if s == "" {
		return os.Geteuid(), nil
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return int(n), nil
	}
	u, err := user.Lookup(s)
	if err != nil {
		return 0, fmt.Errorf("user %q: %w", s, err)
	}
	return strconv.Atoi(u.Uid)
}
