package storage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func adopt(t *testing.T, f *os.File) *File {
	t.Helper()
	st, err := Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func tempFile(t *testing.T, flags int, data []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The handle must keep reading the file it was given when the caller closes the
// descriptor and the number comes to stand for another file.
func TestAdoptOwnsADuplicate(t *testing.T) {
	first := tempFile(t, os.O_RDONLY, []byte("first"))
	second := tempFile(t, os.O_RDONLY, []byte("other"))
	fd := int(first.Fd())
	st := adopt(t, first)
	if err := unix.Dup3(int(second.Fd()), fd, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := unix.Pread(st.Buffered(), got, 0); err != nil {
		t.Fatal(err)
	}
	if string(got) != "first" {
		t.Errorf("after the number was reused the handle reads %q", got)
	}
}

func TestAdoptRefuses(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, f := range map[string]*os.File{"pipe": r, "directory": dir} {
		if _, err := Adopt(int(f.Fd())); !errors.Is(err, ErrFileType) {
			t.Errorf("%s: %v, want ErrFileType", name, err)
		}
	}
	if _, err := Adopt(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("-1: %v, want EBADF", err)
	}
}

func TestTwins(t *testing.T) {
	data := bytes.Repeat([]byte("culvert!"), 4096)
	f := tempFile(t, os.O_RDWR, data)
	st := adopt(t, f)
	if st.CallerDirect() || st.Buffered() != st.FD() || !st.Readable() || !st.Writable() {
		t.Errorf("a buffered descriptor: CallerDirect %v, buffered %d, own %d", st.CallerDirect(), st.Buffered(), st.FD())
	}
	if !st.Facts.Direct.Supported {
		t.Skipf("needs a file system with O_DIRECT under %s (%s)", st.Name, st.Facts.Direct.Source)
	}
	flags, err := unix.FcntlInt(uintptr(st.Direct()), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_DIRECT == 0 {
		t.Fatalf("the direct twin has flags %#x, error %v", flags, err)
	}
	again, err := os.OpenFile(f.Name(), os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	direct := adopt(t, again)
	if !direct.CallerDirect() || direct.Direct() != direct.FD() || direct.Buffered() < 0 {
		t.Errorf("an O_DIRECT descriptor: direct %d, own %d, buffered %d", direct.Direct(), direct.FD(), direct.Buffered())
	}
	// Unaligned, which only the buffered twin can do.
	got := make([]byte, 7)
	if _, err := unix.Pread(direct.Buffered(), got, 3); err != nil || !bytes.Equal(got, data[3:10]) {
		t.Errorf("unaligned pread of the buffered twin: %q, %v", got, err)
	}
}

func TestAccessModes(t *testing.T) {
	f := tempFile(t, os.O_WRONLY, nil)
	if st := adopt(t, f); st.Readable() || !st.Writable() {
		t.Errorf("O_WRONLY: readable %v, writable %v", st.Readable(), st.Writable())
	}
	f = tempFile(t, os.O_RDONLY, nil)
	if st := adopt(t, f); !st.Readable() || st.Writable() {
		t.Errorf("O_RDONLY: readable %v, writable %v", st.Readable(), st.Writable())
	}
}

func TestCloseGivesEverythingBack(t *testing.T) {
	f := tempFile(t, os.O_RDWR, []byte("x"))
	before := openFDs(t)
	st, err := Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if _, err := f.Stat(); err != nil {
		t.Errorf("the caller's descriptor: %v", err)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestSame(t *testing.T) {
	f := tempFile(t, os.O_RDONLY, []byte("x"))
	dup, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	again, err := os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	a, b := adopt(t, f), adopt(t, again)
	c, err := Adopt(dup)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !a.Same(c) {
		t.Error("a duplicate is not the same open file")
	}
	if a.Same(b) {
		t.Error("a second open is the same open file")
	}
}

// A program that has closed its standard input gets no file of ours in its place.
func TestStandardDescriptorsStayFree(t *testing.T) {
	f := tempFile(t, os.O_RDWR, make([]byte, 4096))
	stdin, err := duplicate(0)
	if err != nil {
		t.Skip("needs a standard input: ", err)
	}
	defer unix.Close(stdin)
	if err := unix.Close(0); err != nil {
		t.Fatal(err)
	}
	st, err := Adopt(int(f.Fd()))
	if back := unix.Dup3(stdin, 0, 0); back != nil || err != nil {
		t.Fatal(back, err)
	}
	defer st.Close()
	for _, fd := range []int{st.FD(), st.Buffered(), st.Direct()} {
		if fd >= 0 && fd < afterStandard {
			t.Errorf("the file has descriptor %d", fd)
		}
	}
}

// The size of a block device is found by seeking, which must not move the caller's
// position.
func TestSizeLeavesThePosition(t *testing.T) {
	for _, flags := range []int{os.O_RDONLY, os.O_RDWR | unix.O_DIRECT} {
		f := tempFile(t, os.O_RDWR, make([]byte, 8192))
		if flags&unix.O_DIRECT != 0 {
			again, err := os.OpenFile(f.Name(), flags, 0)
			if err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { again.Close() })
			f = again
		}
		st := adopt(t, f)
		if st.Direct() < 0 {
			t.Skip("no O_DIRECT")
		}
		st.Facts.Block = true // as a device
		if _, err := f.Seek(512, 0); err != nil {
			t.Fatal(err)
		}
		if n, err := st.Size(); n != 8192 || err != nil {
			t.Error(n, err)
		}
		if at, err := f.Seek(0, 1); at != 512 || err != nil {
			t.Errorf("the position is %d, %v", at, err)
		}
	}
}
