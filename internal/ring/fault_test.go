package ring

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// faultLens are a small request, and one of many chunks.
var faultLens = []int64{50_000, 2 << 20}

// Interrupted and short calls are made good.
func TestPatience(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	for _, n := range faultLens {
		for _, write := range []bool{false, true} {
			var calls atomic.Int32
			files.set(func(c call) (int, error) {
				switch k := calls.Add(1) % 3; {
				case k == 0:
					return 0, unix.EINTR
				case k == 1 && c.n > 1:
					return c.n/2 + 1, nil
				}
				return whole, nil
			})
			f, b := newFile(t, noise(1, int(n))), newBuffer(t, r.dev, int(n))
			want := f.data
			if write {
				want = noise(2, int(n))
				b.set(t, want)
			}
			res, err := run1(r, Request{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
			if err != nil || res.N != n || res.Retries == 0 {
				t.Errorf("write %v of %d bytes: %+v, %v", write, n, res, err)
			}
			files.set(nil)
			if !bytes.Equal(b.bytes(t), want) || !bytes.Equal(f.content(t), want) {
				t.Errorf("write %v of %d bytes: wrong bytes", write, n)
			}
		}
	}
}

// A failure in the middle of a file is reported with its offset, and all bytes
// before it are in place.
func TestFileFaults(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	tests := []struct {
		name  string
		write bool
		err   error
	}{
		{"read EIO", false, unix.EIO},
		{"read EFAULT", false, unix.EFAULT},
		{"write ENOSPC", true, unix.ENOSPC},
		{"write EIO", true, unix.EIO},
	}
	for _, tt := range tests {
		for _, n := range faultLens {
			bad := n * 3 / 5
			files.set(func(c call) (int, error) {
				if c.off <= bad && bad < c.off+int64(c.n) && c.verb != "reserve" {
					if c.off == bad {
						return 0, tt.err
					}
					return int(bad - c.off), nil
				}
				return whole, nil
			})
			f, b := newFile(t, noise(1, int(n))), newBuffer(t, r.dev, int(n))
			want := f.data
			if tt.write {
				want = noise(2, int(n))
				b.set(t, want)
			}
			res, err := run1(r, Request{Write: tt.write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
			var e *Error
			if !errors.Is(err, tt.err) || !errors.As(err, &e) || e.Off != bad || res.N != bad {
				t.Errorf("%s in %d bytes: %+v, %v, want %d bytes and that offset", tt.name, n, res, err, bad)
			}
			files.set(nil)
			if !bytes.Equal(b.bytes(t)[:bad], want[:bad]) || !bytes.Equal(f.content(t)[:bad], want[:bad]) {
				t.Errorf("%s in %d bytes: wrong bytes before the failure", tt.name, n)
			}
		}
	}
}

// The first failure in the file decides, whichever is noticed first.
func TestFirstFailure(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const n = 1 << 20
	f, b := newFile(t, noise(1, n)), newBuffer(t, r.dev, n)
	files.set(func(c call) (int, error) {
		if c.off >= 300_000 {
			return 0, unix.EIO
		}
		return min(c.n, 300_000-int(c.off)), nil
	})
	res, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
	if !errors.Is(err, unix.EIO) || res.N != 300_000 {
		t.Errorf("%+v, %v", res, err)
	}
	// The end of the file comes before a failure behind it.
	files.set(func(c call) (int, error) {
		if c.off >= 500_000 {
			return 0, unix.EIO
		}
		return max(0, min(c.n, 300_000-int(c.off))), nil
	})
	res, err = run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
	if err != nil || res.N != 300_000 {
		t.Errorf("end of file before a failure: %+v, %v", res, err)
	}
}

// O_DIRECT that is refused, or stops in the middle, is made good by the page
// cache; one that fails is a failure.
func TestDirectFaults(t *testing.T) {
	files := &coldFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const n = 1<<20 + 300
	for _, write := range []bool{false, true} {
		f := newFile(t, noise(1, n+1000))
		direct, err := unix.Dup(f.buffered) // O_DIRECT enough for a test that decides itself what it refuses
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(direct) })
		b := newBuffer(t, r.dev, n)
		data := noise(2, n)
		q := Request{Write: write, Buffered: f.buffered, Direct: direct, Align: 512, Off: 700, Addr: b.addr(), Len: n}
		try := func(name string, want error, odd func(c call) (int, error)) Result {
			t.Helper()
			files.set(odd)
			if write {
				b.set(t, data)
			}
			res, err := run1(r, q)
			files.set(nil)
			if !errors.Is(err, want) || (want == nil && res.N != n) {
				t.Errorf("write %v, %s: %+v, %v", write, name, res, err)
			}
			if content := f.content(t)[700 : 700+n]; want == nil && !bytes.Equal(content, b.bytes(t)) {
				t.Errorf("write %v, %s: wrong bytes", write, name)
			}
			return res
		}
		res := try("aligned", nil, func(c call) (int, error) {
			if c.fd == direct && (c.off%512 != 0 || c.n%512 != 0) {
				t.Errorf("write %v: %d bytes at %d are not aligned", write, c.n, c.off)
			}
			return whole, nil
		})
		if res.DirectBytes == 0 || res.DirectBytes > n {
			t.Errorf("write %v: %d bytes by O_DIRECT", write, res.DirectBytes)
		}
		res = try("refused", nil, func(c call) (int, error) {
			if c.fd == direct {
				return 0, unix.EINVAL
			}
			return whole, nil
		})
		if res.DirectBytes != 0 || res.Retries == 0 {
			t.Errorf("write %v, refused: %+v", write, res)
		}
		try("stops off the alignment", nil, func(c call) (int, error) {
			if c.fd == direct {
				if c.off%512 != 0 {
					t.Errorf("write %v: goes on by O_DIRECT at %d", write, c.off)
				}
				return 1000, nil
			}
			return whole, nil
		})
		try("fails", unix.EIO, func(c call) (int, error) {
			if c.fd == direct && c.off > 500_000 {
				return 0, unix.EIO
			}
			return whole, nil
		})
	}
}

// coldFiles never finds anything in the page cache.
type coldFiles struct{ oddFiles }

func (*coldFiles) Residency(_ int, _, n int64) (storage.Residency, error) {
	return storage.Residency{Pages: (n + page - 1) / page}, nil
}

// A read from the disk that fits into a slot is one call, however many could help.
func TestColdReadsAreWhole(t *testing.T) {
	const n = 1 << 20
	f := newFile(t, noise(1, n))
	direct, err := unix.Dup(f.buffered)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(direct) })
	cold := new(coldFiles)
	r := openRing(t, openGPU(t), Config{Workers: 4, sys: cold})
	b := newBuffer(t, r.dev, n)
	var calls atomic.Int32
	cold.set(func(c call) (int, error) {
		if c.verb == "pread" {
			calls.Add(1)
		}
		return whole, nil
	})
	res, err := run1(r, Request{Buffered: f.buffered, Direct: direct, Align: 512, Addr: b.addr(), Len: n})
	if err != nil || res.N != n || res.DirectBytes != n || !bytes.Equal(b.bytes(t), f.data) {
		t.Errorf("%+v, %v", res, err)
	}
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// A GPU that fails in the middle is reported, and the ring lives on.
func TestGPUFaults(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	r := openRing(t, dev, smallRing)
	for _, verb := range []string{"copy", "record", "event", "synchronize"} {
		for _, n := range faultLens {
			for _, write := range []bool{false, true} {
				f, b := newFile(t, noise(1, int(n))), newBuffer(t, dev, int(n))
				var asked atomic.Int32
				dev.set(func(v string, _ uint64) error {
					if v != verb {
						return nil
					}
					if k := asked.Add(1); k == 1 && n <= r.small.maxLen || k == 5 {
						return gpu.Fail(verb, gpu.ErrIllegalAddress, "")
					}
					return nil
				})
				q := Request{Write: write, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}
				res, err := run1(r, q)
				failed := verb == "copy" || (n > r.small.maxLen) == (verb != "synchronize")
				var e *Error
				if failed && (!errors.Is(err, gpu.ErrIllegalAddress) || !errors.As(err, &e) || e.Op != "copy" || res.N != e.Off) {
					t.Errorf("%s, write %v, %d bytes: %+v, %v", verb, write, n, res, err)
				}
				dev.set(nil)
				if !write && !bytes.Equal(b.bytes(t)[:res.N], f.data[:res.N]) {
					t.Errorf("%s, %d bytes: wrong bytes before the failure", verb, n)
				}
				if res, err := run1(r, q); err != nil || res.N != n {
					t.Errorf("%s, write %v, %d bytes: afterwards: %+v, %v", verb, write, n, res, err)
				}
			}
		}
	}
}

// A kernel that does not launch, or GPU memory that is not to be had, only
// concerns coalesced requests.
func TestCoalesceFaults(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	r := openRing(t, dev, Config{Workers: 1}) // so that the batch is one chunk
	f, b := newFile(t, noise(1, 64*4096)), newBuffer(t, dev, 64*4096)
	reqs, res := make([]Request, 64), make([]Result, 64)
	for i := range reqs {
		reqs[i] = Request{Buffered: f.buffered, Direct: -1, Off: int64(i) * 4096, Addr: b.addr() + gpu.Addr(i*4096), Len: 4096}
	}
	ctx := context.Background()
	dev.set(func(v string, _ uint64) error {
		if v == "alloc device" {
			return gpu.ErrOutOfMemory
		}
		return nil
	})
	if err := r.Run(ctx, reqs, res); err != nil || !bytes.Equal(b.bytes(t), f.data) {
		t.Errorf("without staging memory: %v", err)
	}
	dev.set(func(v string, _ uint64) error {
		if v == "launch" {
			return gpu.ErrLaunchFailed
		}
		return nil
	})
	if err := r.Run(ctx, reqs, res); !errors.Is(err, gpu.ErrLaunchFailed) || res[0].N != 0 {
		t.Errorf("kernel does not launch: %+v, %v", res[0], err)
	}
	dev.set(nil)
	if err := r.Run(ctx, reqs, res); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	// Memory that is not the GPU's never meets the kernel.
	dev.set(func(v string, _ uint64) error {
		if v == "launch" {
			t.Error("a kernel was let loose on foreign memory")
		}
		return nil
	})
	reqs[63].Addr = 1 << 62
	if err := r.Run(ctx, reqs, res); !errors.Is(err, gpu.ErrInvalidValue) || res[62].N != 4096 {
		t.Errorf("one bad address: %+v, %v", res[62], err)
	}
}

func TestReserve(t *testing.T) {
	files := &oddFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const n = 16 << 20
	f, b := newFile(t, []byte("before")), newBuffer(t, r.dev, n)
	files.set(func(c call) (int, error) {
		if c.verb == "reserve" {
			return 0, unix.ENOSPC
		}
		t.Errorf("%s although there is no room", c.verb)
		return whole, nil
	})
	q := Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}
	if res, err := run1(r, q); !errors.Is(err, unix.ENOSPC) || res.N != 0 {
		t.Errorf("no room: %+v, %v", res, err)
	}
	files.set(nil)
	if got := string(f.content(t)); got != "before" {
		t.Errorf("the file is now %d bytes", len(got))
	}
	if err := (kernel{}).Reserve(f.buffered, 0, n); err != nil {
		t.Fatal(err)
	}
	if got := string(f.content(t)); got != "before" {
		t.Errorf("reserving changed the size to %d", len(got))
	}
	pipe := make([]int, 2)
	if err := unix.Pipe(pipe); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if err := (kernel{}).Reserve(pipe[1], 0, n); err != nil {
		t.Errorf("what is not a file has no room to reserve, but: %v", err)
	}
}

// A write that is larger than the disk must not have all of the disk reserved
// before that is noticed.
func TestReserveTooMuch(t *testing.T) {
	const mib = 1 << 20
	disk := unix.Statfs_t{Type: unix.EXT4_SUPER_MAGIC, Bfree: 100, Bsize: mib}
	other := disk
	other.Type = unix.FUSE_SUPER_MAGIC
	for _, tt := range []struct {
		name         string
		size, blocks int64 // of the file, in MiB
		on           unix.Statfs_t
		n            int64
		want         bool
	}{
		{"room", 10, 10, disk, 100 * mib, true},
		{"no room", 10, 10, disk, 101 * mib, false},
		{"reserved before", 10, 60, disk, 150 * mib, true},
		{"too little reserved", 10, 60, disk, 151 * mib, false},
		{"holes, and perhaps something behind", 100, 60, disk, 160 * mib, true},
		{"a file system that knows by itself", 10, 10, other, 101 * mib, true},
	} {
		st := unix.Stat_t{Size: tt.size * mib, Blocks: tt.blocks * mib / 512}
		if got := fits(&st, &tt.on, tt.n); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	f := newFile(t, []byte("before"))
	var on unix.Statfs_t
	if err := unix.Fstatfs(f.buffered, &on); err != nil || fits(&unix.Stat_t{}, &on, 1<<60) {
		t.Skipf("needs a directory for temporary files on ext4 or overlayfs: %v", err)
	}
	if err := (kernel{}).Reserve(f.buffered, 0, 1<<60); err != unix.ENOSPC {
		t.Errorf("an exabyte: %v", err)
	}
}
