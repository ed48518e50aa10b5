package gpu

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A locker locks host memory in place as a driver that pins it would, as far
// as the process may.
type locker struct {
	mu  sync.Mutex
	why error
}

// own locks memory of the driver's.
func (l *locker) own(b []byte) { l.note(len(b), unix.Mlock(b)) }

// foreign locks memory of somebody else's, which may be a mapping of anything.
func (l *locker) foreign(b []byte) { l.note(len(b), mlockOnFault(b)) }

// note remembers why n bytes could not be locked. Pinned memory works either
// way.
func (l *locker) note(n int, err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return
	}
	l.why = fmt.Errorf("pinned memory is not locked: mlock of %d bytes: %w", n, err)
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil && lim.Cur != unix.RLIM_INFINITY {
		l.why = fmt.Errorf("%w (RLIMIT_MEMLOCK is %d bytes: raise it with ulimit -l, or LimitMEMLOCK in a systemd unit)", l.why, lim.Cur)
	}
}

func (l *locker) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}
