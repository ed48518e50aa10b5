package crashtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/culvert-io/culvert/internal/quality/intercept"
)

// changing are the system calls that change what another process can see. A kill
// before any other call finds what a kill before the next of these finds.
var changing = []string{
	"open", "tmpfile", "mkdir", "unlink", "rename", "link", "symlink", "chmod", "chown", "utimens", "sync", "syncfs", "write",
	"truncate", "allocate", "xattr", "lock", "uring", "bind", "listen",
}

// A scenario is a command that is killed.
type scenario struct {
	args    []string
	prepare func(w *world) error
	// found checks what a user may find after a kill at any moment.
	found func(w *world) error
	// again runs the command again, or what a user would run, and checks the end.
	again func(w *world) error
}

// killAtEach kills the command before its first system call, before its second, and so
// on until it ends by itself.
func (s *scenario) killAtEach(t *testing.T) {
	needIntercept(t)
	for n := 0; ; n++ {
		killed := s.killAt(t, n)
		if t.Failed() {
			return
		}
		if !killed {
			t.Logf("killed before each of %d system calls", n)
			if n < 5 {
				t.Error("the command changes almost nothing: are its system calls seen?")
			}
			return
		}
	}
}

// killAt kills the command before its nth system call.
func (s *scenario) killAt(t *testing.T, n int) bool {
	t.Helper()
	w := newWorld(t)
	defer w.remove()
	if err := s.prepare(w); err != nil {
		t.Fatal(err)
	}
	var last *intercept.Call
	count := 0
	killed, err := w.watched(s.args, changing, func(c *intercept.Call) intercept.Verdict {
		if c.ReadOnly {
			return intercept.Proceed
		}
		count++
		last = c
		if count > n {
			return intercept.Kill
		}
		return intercept.Proceed
	})
	where := fmt.Sprintf("killed before call %d", n)
	if killed {
		where = fmt.Sprintf("killed before call %d, %s %q", n, last.Name, last.Paths)
	}
	if err != nil {
		t.Fatal(where, err)
	}
	if err := s.found(w); err != nil {
		t.Errorf("%s: %v", where, err)
		return killed
	}
	if err := s.again(w); err != nil {
		t.Errorf("%s, then run again: %v", where, err)
	}
	return killed
}

// needIntercept skips a test where system calls cannot be intercepted.
func needIntercept(t *testing.T) {
	t.Helper()
	w := newWorld(t)
	_, err := w.watched([]string{"version"}, []string{"mkdir"}, func(*intercept.Call) intercept.Verdict { return intercept.Proceed })
	if err != nil && !errors.Is(err, errStalled) {
		t.Skip("needs notifications of seccomp: ", err)
	}
}
