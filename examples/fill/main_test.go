package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
)

// TestMain lets the test binary be the child that run starts.
func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if arg == "-child" {
			main()
			return
		}
	}
	os.Exit(m.Run())
}

func newMachine(t *testing.T) *machine.Machine {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{}, "a test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s, _ := soft.Of(m.GPU)
		if err := errors.Join(s.InUse(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestRun(t *testing.T) {
	const size = 5<<20 + 7
	var out bytes.Buffer
	if err := run(&out, newMachine(t), size); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("process %d, driver library loaded: false, has written %d bytes", os.Getpid(), size)
	if !strings.Contains(out.String(), want) || !strings.HasSuffix(out.String(), "all as the child wrote them\n") {
		t.Errorf("got\n%s", &out)
	}
}

// A child that cannot reach the memory makes the parent fail, not hang.
func TestLostChild(t *testing.T) {
	m := newMachine(t)
	s, _ := soft.Of(m.GPU)
	s.Kernel().Unregister("/dev/nvidiactl")
	var out bytes.Buffer
	err := run(&out, m, 1<<20)
	if err == nil || !strings.Contains(err.Error(), "/dev/nvidiactl") {
		t.Errorf("error is %v, output\n%s", err, &out)
	}
}

// TestChildProcess starts the child as a process and gives it what cannot be imported:
// an ordinary file.
func TestChildProcess(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/exe", "-child", "ffff:ff:1f.7", "-bytes", "4096")
	cmd.ExtraFiles = []*os.File{f}
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(text), "fill: map 4096 bytes of exported memory") {
		t.Errorf("the child ended with %v and said %q", err, text)
	}
}
