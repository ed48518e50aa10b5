package cards

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const (
	unit  = 64 << 10
	count = 16
)

func config() Config {
	return Config{Sizes: []uint64{count * unit, 3 * unit}, Unit: unit, Frame: unit, Settings: "two cards"}
}

func where(t testing.TB) string { return filepath.Join(t.TempDir(), "shared") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t testing.TB, path string) *Cards {
	t.Helper()
	c, err := Open(path, config())
	must(t, err)
	return c
}

// free returns the number of free units of card 0, without those of processes that ended.
func free(c *Cards) int {
	c.Lock()
	defer c.Unlock()
	c.Reap()
	return c.Card(0).Units.Free()
}

// takeFirst takes the lowest free units of card 0.
func takeFirst(c *Cards, n int) (units []int) {
	c.Lock()
	defer c.Unlock()
	s := &c.Card(0).Units
	for u := range s.Len() {
		if len(units) < n && !s.Taken(u) {
			s.Take(u)
			units = append(units, u)
		}
	}
	return units
}

// A child is this test in another process, which does a job until it is killed or its
// standard input ends.
type child struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

const jobVariable = "CARDS_JOB"

var jobs = map[string]func(path string) error{}

func TestMain(m *testing.M) {
	if job := jobs[os.Getenv(jobVariable)]; job != nil {
		if err := job(os.Args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func start(t testing.TB, job, path string) *child {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	c := &child{Cmd: exec.Command(exe, path)}
	c.Env = append(os.Environ(), jobVariable+"="+job)
	c.Stderr = os.Stderr
	c.in, err = c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	c.out = bufio.NewReader(out)
	must(t, c.Start())
	t.Cleanup(func() { c.kill() })
	return c
}

// says waits for a line of the child's.
func (c *child) says(t testing.TB, want string) {
	t.Helper()
	if got, err := c.out.ReadString('\n'); err != nil || got != want+"\n" {
		t.Fatalf("the other process says %q (%v), want %q", got, err, want)
	}
}

func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

// finish ends the child's input and waits for it.
func (c *child) finish(t testing.TB) {
	t.Helper()
	must(t, c.in.Close())
	rest, _ := io.ReadAll(c.out)
	if err := c.Wait(); err != nil {
		t.Fatalf("the other process: %v: %s", err, rest)
	}
}

// waitForEnd returns when standard input ends.
func waitForEnd() { _, _ = io.Copy(io.Discard, os.Stdin) }
