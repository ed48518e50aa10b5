package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// oneTensor makes a model of three bytes.
func oneTensor(t *testing.T, path string) {
	t.Helper()
	const head = `{"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`
	text := append([]byte{byte(len(head)), 0, 0, 0, 0, 0, 0, 0}, head+"abc"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// holding starts a holder by the shell's words, which end in the command, waits
// until it holds, calls during, and returns what it said.
func holding(t *testing.T, dir, shell string, during func(p *os.Process)) (string, error) {
	t.Helper()
	oneTensor(t, filepath.Join(dir, "model.safetensors"))
	cmd := exec.Command("sh", "-c", shell+" exec culvert load model.safetensors gpu:0 --hold sock")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M,poison=1")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if strings.HasPrefix(lines.Text(), "holding") {
			during(cmd.Process)
		}
	}
	err = cmd.Wait()
	return said.String() + errs.String(), err
}

// A terminal that goes away stops a command as Ctrl-C does: nothing is left.
func TestHangupStops(t *testing.T) {
	t.Parallel()
	// Or the command inherits it ignored, where nohup runs the test.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	dir := t.TempDir()
	said, err := holding(t, dir, "", func(p *os.Process) {
		if err := p.Signal(unix.SIGHUP); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !strings.Contains(said, "released sock attached=0\n") {
		t.Errorf("it ended with %v:\n%s", err, said)
	}
	if _, err := os.Lstat(filepath.Join(dir, "sock")); err == nil {
		t.Error("the socket is there yet")
	}
}

// What nohup runs outlives its terminal.
func TestNohupOutlivesTheTerminal(t *testing.T) {
	t.Parallel()
	said, err := holding(t, t.TempDir(), "trap '' HUP;", func(p *os.Process) {
		if !ignores(t, p.Pid, unix.SIGHUP) {
			t.Error("it does not ignore the signal that it was to ignore")
		}
		if err := p.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Errorf("it ended with %v:\n%s", err, said)
	}
}

// ignores reports whether a process has a signal ignored.
func ignores(t *testing.T, pid int, s unix.Signal) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var mask uint64
	_, list, _ := strings.Cut(string(text), "SigIgn:\t")
	if _, err := fmt.Sscanf(list, "%x", &mask); err != nil {
		t.Fatal(err)
	}
	return mask>>(s-1)&1 == 1
}
