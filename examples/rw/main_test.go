package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	if err := run(t.Context(), softtest.New(t, soft.Config{Memory: 64 << 20}), path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || len(b) != size {
		t.Fatalf("the file has %d bytes, %v", len(b), err)
	}
	// Memory of this machine is poisoned: a file that nobody wrote would be zeros.
	if strings.Trim(string(b), "\x00") == "" {
		t.Error("the file has no byte of GPU memory")
	}
}

// Each of the two transfers is made, and must be whole.
func TestFailures(t *testing.T) {
	for _, call := range []string{"write", "read"} {
		m := softtest.New(t, soft.Config{Memory: 64 << 20})
		softtest.Break(t, m, "errno=EIO,call="+call)
		path := filepath.Join(t.TempDir(), "data")
		if err := run(t.Context(), m, path); !errors.Is(err, unix.EIO) {
			t.Errorf("%s fails: %v", call, err)
		}
		m = softtest.New(t, soft.Config{Memory: 64 << 20})
		softtest.Break(t, m, "short=4K,call="+call)
		if err := run(t.Context(), m, path); err == nil || !strings.Contains(err.Error(), call+": 4096 bytes of 4194304") {
			t.Errorf("%s is short: %v", call, err)
		}
	}
	err := run(t.Context(), softtest.New(t, soft.Config{Memory: 64 << 20}), filepath.Join(t.TempDir(), "no", "file"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
