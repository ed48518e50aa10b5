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

// open makes a ring, on a locked thread when it is to be the thread's own.
func open(t testing.TB, cfg Config) *Ring {
	t.Helper()
	if cfg.Single {
		runtime.LockOSThread()
		t.Cleanup(runtime.UnlockOSThread)
	}
	r, err := New(cfg)
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

// drain submits and reaps until nothing is under way.
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

// each runs a test on an ordinary ring and on one that belongs to its thread.
func each(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Run("plain", func(t *testing.T) { test(t, Config{Entries: 16}) })
	t.Run("single", func(t *testing.T) { test(t, Config{Entries: 16, Single: true}) })
}

func TestReadWrite(t *testing.T) {
	each(t, func(t *testing.T, cfg Config) {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := open(t, cfg)
		want := pattern(1 << 20)
		const piece = 1 << 16
		for off := 0; off < len(want); off += piece {
			if err := r.Write(int(f.Fd()), want[off:off+piece], int64(off), uint64(off)); err != nil {
				t.Fatal(err)
			}
		}
		for user, res := range drain(t, r) {
			if res != piece {
				t.Errorf("write at %d: %d", user, res)
			}
		}
		if err := r.Fdatasync(int(f.Fd()), 7); err != nil {
			t.Fatal(err)
		}
		if got := drain(t, r); got[7] != 0 || len(got) != 1 {
			t.Errorf("fdatasync: %v", got)
		}
		got := make([]byte, len(want))
		for off := 0; off < len(want); off += piece {
			if err := r.Read(int(f.Fd()), got[off:off+piece], int64(off), uint64(off)); err != nil {
				t.Fatal(err)
			}
		}
		drain(t, r)
		if !bytes.Equal(got, want) {
			t.Error("read differs from what was written")
		}
		// Past the end a read is short, and then empty.
		r.Read(int(f.Fd()), got[:piece], int64(len(want)-100), 1)
		r.Read(int(f.Fd()), got[:piece], int64(len(want)), 2)
		if got := drain(t, r); got[1] != 100 || got[2] != 0 {
			t.Errorf("at the end of the file: %v", got)
		}
	})
}

func TestVector(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := open(t, Config{})
	want := pattern(10000)
	vec := func(b []byte) []unix.Iovec {
		iov := []unix.Iovec{{Base: &b[0]}, {Base: &b[3000]}}
		iov[0].SetLen(3000)
		iov[1].SetLen(7000)
		return iov
	}
	if err := r.Writev(int(f.Fd()), vec(want), 5, 1); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, r); got[1] != 10000 {
		t.Fatalf("writev: %v", got)
	}
	got := make([]byte, 10000)
	if err := r.Readv(int(f.Fd()), vec(got), 5, 2); err != nil {
		t.Fatal(err)
	}
	if n := drain(t, r)[2]; n != 10000 || !bytes.Equal(got, want) {
		t.Errorf("readv: %d bytes, equal %v", n, bytes.Equal(got, want))
	}
}

func TestDirect(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	want := pattern(1 << 20)
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("needs a file system with O_DIRECT under %s: %v", filepath.Dir(name), err)
	}
	defer unix.Close(fd)
	each(t, func(t *testing.T, cfg Config) {
		r := open(t, cfg)
		mem := aligned(t, 2<<20)
		if err := r.Register([][]byte{mem}); err != nil {
			t.Fatal(err)
		}
		got, back := mem[:1<<20], mem[1<<20:]
		const piece = 1 << 16
		for off := 0; off < len(want); off += 2 * piece {
			if err := r.Read(fd, got[off:off+piece], int64(off), uint64(off)); err != nil {
				t.Fatal(err)
			}
			if err := r.ReadFixed(fd, got[off+piece:off+2*piece], int64(off+piece), 0, uint64(off+piece)); err != nil {
				t.Fatal(err)
			}
		}
		for user, res := range drain(t, r) {
			if res != piece {
				t.Errorf("read at %d: %d", user, res)
			}
		}
		if !bytes.Equal(got, want) {
			t.Error("O_DIRECT read differs from the file")
		}
		copy(back, want)
		if err := r.WriteFixed(fd, back, 0, 0, 1); err != nil {
			t.Fatal(err)
		}
		if got := drain(t, r); got[1] != 1<<20 {
			t.Errorf("fixed write: %v", got)
		}
	})
}

func TestErrors(t *testing.T) {
	r := open(t, Config{Entries: 4})
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
		if _, err := (Done{Res: res}).Result(); !errors.Is(err, unix.EBADF) {
			t.Errorf("operation %d on no file: %v", user, err)
		}
	}
	if err := r.Submit(3); err != nil {
		t.Errorf("waiting while nothing is under way: %v", err)
	}
	if err := r.Register([][]byte{nil}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("registering nothing: %v", err)
	}
}

func TestCloseWaits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, pattern(1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := New(Config{})
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("needs a kernel that allows io_uring: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<20)
	if err := r.Read(int(f.Fd()), got, 0, 0); err != nil {
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

// A ring that belongs to a thread says so to others instead of misbehaving.
func TestSingleOtherThread(t *testing.T) {
	r := open(t, Config{Single: true})
	if !r.Single() {
		t.Skip("needs Linux 6.1 for DEFER_TASKRUN")
	}
	err := make(chan error)
	go func() {
		runtime.LockOSThread() // and leave: the thread ends with the goroutine
		err <- r.Submit(0)
	}()
	if err := <-err; !errors.Is(err, unix.EEXIST) {
		t.Errorf("from another thread: %v, want EEXIST", err)
	}
}

func TestNoLeaks(t *testing.T) {
	open(t, Config{}).Submit(0) // or skip
	before := count(t, "/proc/self/fd")
	for range 20 {
		r, err := New(Config{Entries: 8})
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
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, pattern(1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := open(t, Config{})
	fd, buf := int(f.Fd()), make([]byte, 4096)
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
	name := filepath.Join(b.TempDir(), "f")
	if err := os.WriteFile(name, pattern(1<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	fd, buf := int(f.Fd()), make([]byte, 4096)
	b.Run("pread", func(b *testing.B) {
		for i := range b.N {
			unix.Pread(fd, buf, int64(i%256)<<12)
		}
	})
	for _, batch := range []int{1, 32} {
		b.Run(map[int]string{1: "ring", 32: "ring32"}[batch], func(b *testing.B) {
			r := open(b, Config{})
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
