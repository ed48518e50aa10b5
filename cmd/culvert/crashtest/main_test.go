package crashtest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/quality/intercept"
)

var random = flag.Int("crash.random", 0, "`number` of random seeds beside the fixed ones")

// culvert is the path of the command.
var culvert string

func TestMain(m *testing.M) {
	if os.Getenv(attackerRole) != "" {
		attack()
		return
	}
	flag.Parse()
	syscall.Umask(0o077) // other users may read nothing
	status, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// build builds the command and runs the tests.
func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "crashtest")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	culvert = filepath.Join(dir, "culvert")
	cmd := exec.Command("go", "build", "-trimpath", "-o", culvert, "github.com/culvert-io/culvert/cmd/culvert")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// seeds are the fixed seeds of a test and those that -crash.random asks for.
func seeds(fixed ...uint64) []uint64 {
	for range *random {
		fixed = append(fixed, rand.Uint64N(1_000_000))
	}
	return fixed
}

// A world is the directory in which a command works.
type world struct {
	t   *testing.T
	dir string  // absolute
	out *output // of the last command
}

// newWorld makes an empty world, in memory where there is such a file system: a
// killed process loses nothing that it wrote, so storage plays no part.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "crashtest")
	if err != nil {
		dir, err = os.MkdirTemp("", "crashtest")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // if remove was not called
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "home"), 0o700), os.Mkdir(filepath.Join(dir, "w"), 0o700)); err != nil {
		t.Fatal(err)
	}
	return &world{t: t, dir: filepath.Join(dir, "w")}
}

// remove removes the world: a test makes hundreds, and memory may be small.
func (w *world) remove() { _ = os.RemoveAll(filepath.Dir(w.dir)) }

func (w *world) path(name ...string) string {
	return filepath.Join(append([]string{w.dir}, name...)...)
}

// command prepares a run of culvert in the world.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), culvert, args...)
	home := filepath.Join(filepath.Dir(w.dir), "home")
	cmd.Dir = w.dir
	cmd.Env = []string{"CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=64M,poison=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home, "HOME=" + home, "XDG_RUNTIME_DIR=" + home}
	return cmd
}

// run runs culvert undisturbed. Its error has what it printed.
func (w *world) run(args ...string) error {
	_, err := w.watched(args, nil, nil)
	return err
}

// stall is when a command counts as stalled. It needs milliseconds, and waits at
// most half a minute for a lock of its own user.
const stall = 2 * time.Minute

var errStalled = errors.New("the command stalled")

// watched runs culvert, and calls each before those system calls that concern the
// world. killed reports whether each ended it. A server is stopped when it serves.
func (w *world) watched(args, calls []string, each func(*intercept.Call) intercept.Verdict) (killed bool, err error) {
	cmd := w.command(args...)
	started := make(chan struct{})
	w.out = &output{then: func() {
		<-started
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}}
	cmd.Stdout, cmd.Stderr = w.out, w.out
	var mu sync.Mutex
	stop := func() {}
	if each == nil {
		err = cmd.Start()
	} else {
		stop, err = intercept.Start(cmd, calls, func(c *intercept.Call) intercept.Verdict {
			if !w.concerned(c) {
				return intercept.Proceed
			}
			mu.Lock()
			defer mu.Unlock()
			v := intercept.Kill
			if !killed {
				v = each(c)
			}
			killed = v == intercept.Kill
			return v
		})
	}
	if err != nil {
		return false, err
	}
	close(started)
	late, cancel := context.WithTimeout(w.t.Context(), stall)
	defer context.AfterFunc(late, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })() // prints where it waits
	defer cancel()
	err = cmd.Wait()
	stop()
	switch {
	case late.Err() != nil && !killed:
		return false, fmt.Errorf("%w: culvert %s\n%s", errStalled, strings.Join(args, " "), w.out)
	case killed || strings.Contains(w.out.String(), "\nreleased "):
		return killed, nil
	case err != nil:
		return false, fmt.Errorf("culvert %s: %w\n%s", strings.Join(args, " "), err, w.out)
	}
	return false, nil
}

// concerned reports whether a call is about something in the world. Relative paths are.
func (w *world) concerned(c *intercept.Call) bool {
	for _, p := range c.Paths {
		if !strings.HasPrefix(p, "/") && !strings.Contains(p, ":[") || strings.HasPrefix(p, w.dir) || c.Name == "bind" || c.Name == "listen" {
			return true
		}
	}
	return false
}

// An output keeps what a command prints, and calls then when it says that it serves.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	then func()
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(p, []byte("holding ")) {
		go o.then()
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
