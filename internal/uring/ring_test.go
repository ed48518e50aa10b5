package uring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// open makes a ring on a locked thread.
func open(t testing.TB, entries int) *Ring {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r, err := New(entries)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("needs a kernel that allows io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// drain submits and reaps until nothing is in flight.
func drain(t testing.TB, r *Ring) map[uint64]int32 {
	t.Helper()
	got := map[uint64]int32{}
	var done [8]Done
	for r.Busy() > 0 {
		if err := r.Submit(1); err != nil {
			t.Fatal(err)
		}
		for _, d := range done[:r.Reap(done[:])] {
			if _, twice := got[d.User]; twice {
				t.Errorf("operation %d completed twice", d.User)
			}
			got[d.User] = d.Res
		}
	}
	return got
}

func pattern(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func aligned(t testing.TB, n int) []byte {
	t.Helper()
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m) })
	return m
}

// newFile writes a file and opens it.
func newFile(t testing.TB, data []byte, flags int) int {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if errors.Is(err, unix.EINVAL) {
		t.Skipf("needs a file system with O_DIRECT under %s: %v", filepath.Dir(name), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestReady checks that a thread that polls sees the completion of a read without a
// system call.
func TestReady(t *testing.T) {
	const size = 4096
	want := pattern(size)
	fd := newFile(t, want, unix.O_DIRECT)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, err := NewPolled(1)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("needs a kernel that allows io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := aligned(t, size)
	if err := errors.Join(r.Read(fd, got, 0, 7), r.Submit(0)); err != nil {
		t.Fatal(err)
	}
	for r.Ready() == 0 {
	}
	var done [1]Done
	if n := r.Reap(done[:]); n != 1 || done[0] != (Done{7, size}) || !bytes.Equal(got, want) || r.Ready() != 0 {
		t.Errorf("%d completions, %+v, or wrong bytes", n, done)
	}
}

func TestRead(t *testing.T) {
	for name, flags := range map[string]int{"buffered": 0, "O_DIRECT": unix.O_DIRECT} {
		t.Run(name, func(t *testing.T) {
			want := pattern(1 << 20)
			fd := newFile(t, want, flags)
			r := open(t, 16)
			got := aligned(t, len(want))
			const size = 1 << 16
			for off := 0; off < len(want); off += size {
				if err := r.Read(fd, got[off:off+size], int64(off), uint64(off)); err != nil {
					t.Fatal(err)
				}
			}
			for user, res := range drain(t, r) {
				if res != size {
					t.Errorf("read at %d: %d", user, res)
				}
			}
			if !bytes.Equal(got, want) {
				t.Error("wrong bytes")
			}
			// Past the end a read is short, and then empty.
			if err := errors.Join(r.Read(fd, got[:size], int64(len(want)-4096), 1), r.Read(fd, got[:size], int64(len(want)), 2)); err != nil {
				t.Fatal(err)
			}
			if got := drain(t, r); got[1] != 4096 || got[2] != 0 {
				t.Errorf("at the end of the file: %v", got)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	r := open(t, 4)
	buf := make([]byte, 10)
	for i := range r.Entries() {
		if err := r.Read(-1, buf, 0, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Read(-1, buf, 0, 99); !errors.Is(err, ErrFull) {
		t.Errorf("an operation too many: %v", err)
	}
	for user, res := range drain(t, r) {
		if res != -int32(unix.EBADF) {
			t.Errorf("operation %d on no file: %d", user, res)
		}
	}
	if err := r.Submit(3); err != nil {
		t.Errorf("waiting while nothing is in flight: %v", err)
	}
}

func TestCloseWaits(t *testing.T) {
	fd := newFile(t, pattern(1<<20), 0)
	r, err := New(64)
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("needs a kernel that allows io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<20)
	if err := r.Read(fd, got, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, pattern(1<<20)) {
		t.Error("Close returned before the read was done")
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

func TestNoLeaks(t *testing.T) {
	open(t, 8).Submit(0) // or skip
	before := count(t, "/proc/self/fd")
	for range 20 {
		r, err := New(8)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(t, "/proc/self/fd"); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(maps, []byte("io_uring")); n > 2 {
		t.Errorf("%d mappings of rings, want the 2 of the one that is open", n)
	}
}

func count(t *testing.T, dir string) int {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestAllocs(t *testing.T) {
	fd, r, buf := newFile(t, pattern(1<<16), 0), open(t, 8), make([]byte, 4096)
	done := make([]Done, 8)
	if n := testing.AllocsPerRun(100, func() {
		r.Read(fd, buf, 0, 1)
		r.Submit(1)
		r.Reap(done)
	}); n != 0 {
		t.Errorf("%v allocations per read", n)
	}
}

func BenchmarkRead4K(b *testing.B) {
	fd, buf := newFile(b, pattern(1<<20), 0), make([]byte, 4096)
	b.Run("pread", func(b *testing.B) {
		for i := range b.N {
			unix.Pread(fd, buf, int64(i%256)<<12)
		}
	})
	for _, batch := range []int{1, 32} {
		b.Run(map[int]string{1: "ring", 32: "ring32"}[batch], func(b *testing.B) {
			r := open(b, 64)
			done := make([]Done, batch)
			for i := 0; i < b.N; i += batch {
				for j := range batch {
					r.Read(fd, buf, int64((i+j)%256)<<12, 0)
				}
				r.Submit(batch)
				r.Reap(done)
			}
		})
	}
}
