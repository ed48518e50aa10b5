package ring

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/internal/uring"
)

// Halves lie side by side, in the file and in the slot, and meet on a boundary.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Request{
			Off:   rapid.Int64Range(0, 1<<40).Draw(t, "off"),
			Len:   rapid.Int64Range(minSplit, defaultSlot).Draw(t, "len"),
			Align: 1 << rapid.IntRange(9, 15).Draw(t, "align"),
		}
		at := int(q.Off & (q.boundary() - 1))
		s := slot{batch: &batch{reqs: []Request{q}}, segments: []segment{{at: at, n: int(q.Len)}}}
		s.split()
		a, b := s.segments[0], s.segments[1]
		if len(s.segments) != 2 || a.off != 0 || a.at != at || a.n+b.n != int(q.Len) {
			t.Fatalf("%+v", s.segments)
		}
		if b.off != int64(a.n) || b.at != at+a.n || (q.Off+b.off)%max(q.boundary(), cutUnit) != 0 {
			t.Fatalf("%+v", s.segments)
		}
		if a.n < minSplit/4 || b.n < minSplit/4 {
			t.Fatalf("halves of %d and %d bytes", a.n, b.n)
		}
		_, end, _ := a.around(&q, defaultSlot+page)
		from, _, pos := b.around(&q, defaultSlot+page)
		if end != from || pos != q.Off+b.off {
			t.Fatalf("one half is read up to %d, the other from %d, file offset %d", end, from, pos)
		}
	})
}

// coldFile is a file that the page cache has dropped.
func coldFile(t *testing.T, n int) *testFile {
	t.Helper()
	f := newFile(t, noise(7, n))
	if f.direct < 0 {
		t.Skip("needs a file system with O_DIRECT, on a disk")
	}
	f.cool(t)
	if r, err := (kernel{}).Residency(f.buffered, 0, int64(n)); err != nil || r.Cached > 0 {
		t.Skip("needs a page cache that can be dropped")
	}
	return f
}

func needUring(t *testing.T) {
	t.Helper()
	b, err := uring.New(2)
	if err != nil {
		t.Skipf("needs io_uring: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A read that waits for a disk goes in halves, each copied by itself, wherever the
// file ends.
func TestSplitRead(t *testing.T) {
	needUring(t)
	const size = 1<<20 + 777
	odd := newOddGPU(openGPU(t))
	for _, tt := range []struct {
		name   string
		cfg    Config
		off    int64
		n      int
		copies int
	}{
		{"aligned", Config{}, 0, 1 << 20, 2},
		{"off every boundary", Config{}, 1234, 700<<10 + 77, 2},
		{"just large enough", Config{}, 4096, minSplit, 2},
		{"too small", Config{}, 4096, minSplit - 1, 1},
		{"without io_uring", Config{noUring: true}, 0, 1 << 20, 1},
		{"to the end", Config{}, 300 << 10, size - 300<<10, 2},
		{"the end in the second half", Config{}, 300 << 10, 1 << 20, 2},
		{"the end in the first half", Config{}, 900 << 10, 1 << 20, 1},
		{"behind the end", Config{}, 2 << 20, 1 << 20, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, b := coldFile(t, size), newBuffer(t, odd.Device, tt.n)
			r := openRing(t, odd, tt.cfg)
			var mu sync.Mutex
			var copies int
			odd.set(func(verb string, _ uint64) error {
				mu.Lock()
				defer mu.Unlock()
				if verb == "copy" {
					copies++
				}
				return nil
			})
			defer odd.set(nil)
			res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Off: tt.off, Addr: b.addr(), Len: int64(tt.n)})
			want := f.data[min(tt.off, size):min(tt.off+int64(tt.n), size)]
			if err != nil || int(res.N) != len(want) {
				t.Fatalf("%+v, %v, want %d bytes", res, err, len(want))
			}
			if !bytes.Equal(b.bytes(t)[:len(want)], want) {
				t.Error("wrong bytes")
			}
			if copies != tt.copies {
				t.Errorf("%d copies, want %d", copies, tt.copies)
			}
			if res.DirectBytes < res.N/2 {
				t.Errorf("%d of %d bytes by O_DIRECT", res.DirectBytes, res.N)
			}
		})
	}
}

// Wherever the file ends, the disk is asked once.
func TestSplitReadOnce(t *testing.T) {
	needUring(t)
	r := openRing(t, openGPU(t), Config{})
	b := newBuffer(t, r.dev, 4<<20)
	for _, tt := range []struct{ size, n int }{
		{1 << 20, 1 << 20},
		{1<<20 + 777, 1<<20 + 777},
		{4<<20 - 1, 4<<20 - 1},
		{3<<20 + 777, 4 << 20},
		{3584 << 10, 4 << 20},
	} {
		f := coldFile(t, tt.size)
		before := bytesRead(t)
		res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Len: int64(tt.n)})
		if err != nil || res.N != int64(tt.size) {
			t.Fatalf("%+v, %v", res, err)
		}
		if n := bytesRead(t) - before; n > int64(tt.size)*11/10 {
			t.Errorf("for %d bytes of %d the disk was asked for %d", tt.n, tt.size, n)
		}
	}
}

// bytesRead is how much the process had from disks.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("needs a kernel that counts I/O: %v", err)
	}
	_, rest, _ := strings.Cut(string(b), "\nread_bytes: ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return n
}

// Where io_uring breaks, reads go on without.
func TestSplitReadUringBreaks(t *testing.T) {
	needUring(t)
	const n = 1 << 20
	f := coldFile(t, n)
	r := openRing(t, openGPU(t), Config{Workers: 1})
	b := newBuffer(t, r.dev, n)
	read := func() {
		t.Helper()
		b.set(t, make([]byte, n))
		res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Len: n})
		if err != nil || res.N != n || res.DirectBytes != n || !bytes.Equal(b.bytes(t), f.data) {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	before := rings(t)
	read()
	made := rings(t)
	made = slices.DeleteFunc(made, func(fd int) bool { return slices.Contains(before, fd) })
	if len(made) != 1 {
		t.Fatalf("%d io_urings were made", len(made))
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if err := unix.Dup3(null, made[0], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	f.cool(t)
	read()
	r.sched.mu.Lock()
	l := r.sched.free[0]
	r.sched.mu.Unlock()
	if l.uring != nil || !l.triedUring {
		t.Error("the pipeline keeps the broken one")
	}
	if _, err := unix.FcntlInt(uintptr(made[0]), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("it was not closed: %v", err)
	}
}

// rings are the descriptors of the process's io_urings.
func rings(t *testing.T) (list []int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err != nil || to != "anon_inode:[io_uring]" {
			continue
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// A read that is cut because it lies far from a boundary leaves a rest, which is not
// halved.
func TestSplitReadRemainder(t *testing.T) {
	needUring(t)
	const align = maxAlign
	f := coldFile(t, 5<<20)
	r := openRing(t, openGPU(t), Config{})
	b := newBuffer(t, r.dev, defaultSlot)
	for _, off := range []int64{align - 512, 2*align - 512, 2*align - 8192} {
		res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: align, Off: off, Addr: b.addr(), Len: defaultSlot})
		if err != nil || res.N != defaultSlot || !bytes.Equal(b.bytes(t), f.data[off:off+defaultSlot]) {
			t.Errorf("at %d: %+v, %v", off, res, err)
		}
	}
}

// Any cold read brings the bytes of the file, and nothing else.
func TestSplitReadAnywhere(t *testing.T) {
	needUring(t)
	const size = 5<<20 + 777
	f := coldFile(t, size)
	r := openRing(t, openGPU(t), Config{})
	b := newBuffer(t, r.dev, defaultSlot)
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Int64Range(0, size).Draw(t, "off")
		n := rapid.Int64Range(minSplit-8192, defaultSlot).Draw(t, "len")
		align := max(f.align, 1<<rapid.IntRange(9, 15).Draw(t, "align"))
		q := Request{Buffered: f.buffered, Direct: f.direct, Align: align, Off: off, Addr: b.addr(), Len: n}
		res, err := run1(r, q)
		want := f.data[off:min(off+n, size)]
		if err != nil || res.N != int64(len(want)) {
			t.Fatalf("%+v, %v, want %d bytes", res, err, len(want))
		}
		if !bytes.Equal(b.bytes(t)[:len(want)], want) {
			t.Fatal("wrong bytes")
		}
	})
}

// TestSplitReadTimed checks that cold reads are timed, except those that end early,
// and that the faster method is used.
func TestSplitReadTimed(t *testing.T) {
	needUring(t)
	const n = 1 << 20
	f := coldFile(t, n)
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, Config{})
	b := newBuffer(t, odd.Device, n)
	var copies atomic.Int32
	odd.set(func(verb string, _ uint64) error {
		if verb == "copy" {
			copies.Add(1)
		}
		return nil
	})
	read := func(off int64) int32 {
		t.Helper()
		copies.Store(0)
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Off: off, Addr: b.addr(), Len: n}); err != nil {
			t.Fatal(err)
		}
		return copies.Load()
	}
	r.split.choice.Add(tune.Alternative, n, 1) // whole reads are faster than anything that can be measured
	read(4096)
	if r.split.choice.Faster() != tune.Default {
		t.Error("a read past the end of the file was timed")
	}
	if n := read(0); n != 2 || r.split.choice.Faster() != tune.Alternative {
		t.Errorf("a split read made %d copies, want 2; the faster method is %v", n, r.split.choice.Faster())
	}
	if n := read(0); n != 1 {
		t.Errorf("a whole read made %d copies", n)
	}
}

// When the copy of either half fails, what lies before it is in place.
func TestSplitReadCopyFails(t *testing.T) {
	needUring(t)
	const n = 1 << 20
	broken := errors.New("broken")
	odd := newOddGPU(openGPU(t))
	r := openRing(t, odd, Config{})
	b := newBuffer(t, odd.Device, n)
	const off = 100 << 10 // so that the halves differ in size
	for second := range 2 {
		f := coldFile(t, n+off)
		var sizes []uint64
		s := slot{batch: &batch{reqs: []Request{{Off: off, Len: n, Align: f.align}}}, segments: []segment{{n: n}}}
		s.split()
		bad := uint64(s.segments[second].n)
		odd.set(func(verb string, n uint64) error {
			if verb == "copy" {
				if sizes = append(sizes, n); n == bad {
					return broken
				}
			}
			return nil
		})
		b.set(t, make([]byte, n))
		res, err := run1(r, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Off: off, Addr: b.addr(), Len: n})
		odd.set(nil)
		if want := s.segments[second].off; !errors.Is(err, broken) || res.N != want {
			t.Fatalf("half %d of %d bytes: %+v, %v, want %d bytes; copies of %d", second, bad, res, err, want, sizes)
		}
		if len(sizes) != 2 {
			t.Errorf("copies of %d bytes, want two", sizes)
		}
		if !bytes.Equal(b.bytes(t)[:res.N], f.data[off:off+res.N]) {
			t.Error("wrong bytes")
		}
	}
}

// A copy is made shorter by work on the CPU only while others wait with it.
func TestDemoteOnlyBehindCopies(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	for _, tt := range []struct {
		queued int64
		want   bool
	}{
		{0, false},
		{demoteQueue<<20 - 1, false},
		{demoteQueue << 20, true},
	} {
		r.copies.Store(tt.queued)
		if got := r.copies.behind(1 << 20); got != tt.want {
			t.Errorf("%d bytes in flight: %v", tt.queued, got)
		}
	}
	r.copies.Store(0)
}
