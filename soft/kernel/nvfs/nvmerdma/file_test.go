package nvmerdma

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A namespace stands for a file during one request. A command that a lost target executes
// later fails and does not touch the file, and behind the end of a file are zeros.
func TestLateCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte{7}, 5000)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	f := &file{id: 1}
	f.admit(int(disk.Fd()))
	b := bytes.Repeat([]byte{0xee}, 2*blockSize)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil || !bytes.Equal(b[:5000], want) || !bytes.Equal(b[5000:], make([]byte, len(b)-5000)) {
		t.Errorf("%d bytes, %v, or other data", n, err)
	}
	if _, err := f.ReadAt(b, -1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a bad offset: %v", err)
	}
	if err := f.dismiss(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the cause is %v", err)
	}
	_, rerr := f.ReadAt(b, 0)
	_, werr := f.WriteAt(make([]byte, blockSize), 0)
	for _, err := range []error{rerr, werr, f.Sync()} {
		if !errors.Is(err, errNoRequest) {
			t.Errorf("after the request: %v", err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has changed, %v", err)
	}
}
