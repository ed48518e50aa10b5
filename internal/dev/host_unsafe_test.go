//go:build linux

package dev

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func wantPathError(t *testing.T, err error, path string, cause error) {
	t.Helper()
	pe, ok := errors.AsType[*fs.PathError](err)
	if !ok || pe.Path != path || pe.Op == "" {
		t.Fatalf("error is %v (%T), want an *fs.PathError for %s", err, err, path)
	}
	if !errors.Is(err, cause) {
		t.Fatalf("error is %v, want one that holds %v", err, cause)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	_, err := Host().Open("/dev/no-such-node")
	wantPathError(t, err, "/dev/no-such-node", unix.ENOENT)
}

func TestIoctl(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Host().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var left int32
	if err := n.Ioctl(unix.TIOCINQ, unsafe.Pointer(&left)); err != nil {
		t.Fatal(err)
	}
	if left != 100 {
		t.Errorf("TIOCINQ says %d bytes, want 100", left)
	}
	wantPathError(t, n.Ioctl(0xC0104629, unsafe.Pointer(&left)), path, unix.ENOTTY)
}

func TestMmap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	page := os.Getpagesize()
	content := bytes.Repeat([]byte("culvert."), 2*page/8)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := Host().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := n.Mmap(int64(page), page, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	if n.Fd() < 0 {
		t.Error("an open node has no descriptor")
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if got := Bytes(m); !bytes.Equal(got, content[page:]) {
		t.Error("the mapping does not show the file's second page")
	}
	copy(Bytes(m), "stored")
	for range 2 {
		if err := m.Unmap(); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(after[page : page+6]); got != "stored" {
		t.Errorf("the file holds %q where the mapping was written", got)
	}
}

func TestBadMmap(t *testing.T) {
	n, err := Host().Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, size := range []int{0, -1} {
		_, err := n.Mmap(0, size, unix.PROT_READ)
		wantPathError(t, err, "/dev/null", unix.EINVAL)
	}
	_, err = n.Mmap(0, os.Getpagesize(), unix.PROT_READ)
	wantPathError(t, err, "/dev/null", unix.ENODEV)
}

func TestClosedNode(t *testing.T) {
	n, err := Host().Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if fd := n.Fd(); fd != -1 {
		t.Errorf("a closed node has descriptor %d", fd)
	}
	wantPathError(t, n.Ioctl(0, nil), "/dev/null", fs.ErrClosed)
	_, err = n.Mmap(0, 4096, unix.PROT_READ)
	wantPathError(t, err, "/dev/null", fs.ErrClosed)
	wantPathError(t, n.Close(), "/dev/null", fs.ErrClosed)
}

func TestFS(t *testing.T) {
	fsys := Host().FS()
	if b, err := fs.ReadFile(fsys, "proc/self/comm"); err != nil || len(b) == 0 {
		t.Errorf("proc/self/comm: %q, %v", b, err)
	}
	if _, err := fs.ReadLink(fsys, "proc/self/exe"); err != nil {
		t.Errorf("links cannot be read: %v", err)
	}
}

func TestMapFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	if err := f.Truncate(int64(page)); err != nil {
		t.Fatal(err)
	}
	m, err := MapFile(f, 0, page, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	copy(Bytes(m), "stored")
	got := make([]byte, 6)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "stored" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}
	_, err = MapFile(f, 0, 0, unix.PROT_READ)
	wantPathError(t, err, f.Name(), unix.EINVAL)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := MapFile(f, 0, page, unix.PROT_READ); !errors.Is(err, os.ErrClosed) {
		t.Errorf("mapping a closed file: %v", err)
	}
}
