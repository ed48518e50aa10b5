package atomicfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// LockWait is how long [LockDir] waits. What is done under the lock takes
// milliseconds, seconds on slow storage.
const LockWait = 30 * time.Second

// ErrLocked reports a directory that stays locked.
var ErrLocked = errors.New("another process of this user has locked it")

// LockDir waits until no other process of this user has locked the directory. The
// lock is on a file in it that other users cannot open: on the directory itself,
// every user who can read it could hold a lock. LockDir does nothing where the
// process may not create the file, and where the file system has no such locks.
func LockDir(ctx context.Context, dir string) (unlock func() error, err error) {
	return lockDir(ctx, dir, LockWait)
}

func lockDir(ctx context.Context, dir string, wait time.Duration) (unlock func() error, err error) {
	d, err := OpenDir(dir)
	if errors.Is(err, fs.ErrPermission) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	release, err := d.lock(ctx, wait)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return func() error { return errors.Join(release(), d.Close()) }, nil
}

func (d *Dir) lock(ctx context.Context, wait time.Duration) (unlock func() error, err error) {
	name := ".lock-" + strconv.Itoa(os.Geteuid()) + Suffix // Sweep recognises it
	end := time.Now().Add(wait)
	for {
		f, err := d.tryLock(name)
		switch {
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) || unsupported(err):
			return func() error { return nil }, nil
		case err == nil:
			// Its holder removes it: a lock counts only while the file has its name.
			return func() error { return errors.Join(d.Remove(name), f.Close()) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, err
		case time.Now().After(end):
			return nil, fmt.Errorf("lock %s: %w for %v (fix: end that process; fuser %s shows it)", d.Path("."), ErrLocked, wait, d.Path(name))
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tryLock creates and locks a file. EWOULDBLOCK means to try again.
func (d *Dir) tryLock(name string) (*os.File, error) {
	f, err := d.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err == nil {
		if err = own(f); err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err == nil && !d.named(f, name) {
			err = unix.EWOULDBLOCK // its holder has removed it
		}
		if err == nil {
			return f, nil
		}
		f.Close()
	}
	if isAny(err, errForeign, ErrSymlink, unix.EISDIR, unix.ENXIO) {
		// Another user's, or put there by one: without it, or without a lock.
		if err := d.Remove(name); err != nil {
			return nil, fs.ErrPermission
		}
		return nil, unix.EWOULDBLOCK
	}
	return nil, err
}

var errForeign = errors.New("other users can lock it")

// own returns errForeign if another user may be able to lock the file.
func own(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return errForeign
	}
	return nil
}
