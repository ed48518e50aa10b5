//go:build linux

package wc

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// beyond is mapped memory with nothing behind it: touching it raises SIGBUS,
// as a mapping of a GPU does that fell off the bus.
func beyond(t *testing.T) []byte {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func guarded(f func()) (err error) {
	defer Guard(Arm(), &err)
	f()
	return nil
}

func TestFaultIsAnError(t *testing.T) {
	gone, here := beyond(t), make([]byte, 4096)
	bothWays(t, func(t *testing.T) {
		for _, n := range []int{1, 31, 64, 200, 4096} {
			for name, f := range map[string]func(){
				"Store": func() { Store(gone[:n], here) },
				"Load":  func() { Load(here, gone[:n]) },
			} {
				err := guarded(f)
				if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), "0x") {
					t.Errorf("%s of %d bytes: %v, want %v with the address", name, n, err, ErrFault)
				}
			}
		}
	})
	if err := guarded(func() {}); err != nil {
		t.Errorf("no fault: %v", err)
	}
	if debug.SetPanicOnFault(false) {
		t.Error("faults of the goroutine are still panics")
	}
}

func TestOtherPanicsPass(t *testing.T) {
	index := 9
	for name, f := range map[string]func(){
		"a value": func() { panic("value") },
		"a bug":   func() { _ = make([]byte, 3)[index] },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic was swallowed", name)
				}
			}()
			_ = guarded(f)
		}()
	}
}
