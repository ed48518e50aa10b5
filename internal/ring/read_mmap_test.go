package ring

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
)

// mappedFiles are all in the page cache. It counts reads from mappings, which fail with
// an error that is not nil.
type mappedFiles struct {
	kernel
	data           []byte
	copies, preads atomic.Int32
	fail           error
}

func (f *mappedFiles) CopyMapped(_ *storage.Stream, p []byte, off int64) error {
	f.copies.Add(1)
	if f.fail != nil {
		clear(p)
		return f.fail
	}
	copy(p, f.data[off:])
	return nil
}

func (*mappedFiles) Residency(_ int, off, n int64) (storage.Residency, error) {
	pages := (up(off+n, page) - down(off, page)) / page
	return storage.Residency{Pages: pages, Cached: pages}, nil
}

func (f *mappedFiles) Pread(fd int, p []byte, off int64) (int, error) {
	f.preads.Add(1)
	return f.kernel.Pread(fd, p, off)
}

// fasterBy makes a ring believe that a method is the faster one.
func fasterBy(r *Ring, m tune.Method) {
	c := &r.files.mappedReads.choice
	c.Early = 0
	c.Add(m, 1<<20, time.Millisecond)
	c.Add(1-m, 1<<20, time.Second)
}

// TestMappedRead: a long read of cached pages uses the faster method, and has the same
// bytes and the same receipt by both.
func TestMappedRead(t *testing.T) {
	const n = 3*minMappedRead + 5000
	f := newFile(t, noise(1, n))
	for _, tt := range []struct {
		name   string
		faster tune.Method
		fail   error
		off    int64
		mapped bool // some read is tried from a mapping
		pread  bool // and some by pread
	}{
		{"pread", tune.Default, nil, 0, false, true},
		{"mapping", tune.Alternative, nil, 0, true, false},
		{"mapping, off a page", tune.Alternative, nil, 4001, true, false},
		{"a mapping that faults", tune.Alternative, errFault, 100, true, true},
		{"a file that is not mapped", tune.Alternative, errNotMapped, 100, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := &mappedFiles{data: f.data, fail: tt.fail}
			r := openRing(t, openGPU(t), Config{Workers: 1, sys: files})
			fasterBy(r, tt.faster)
			res := readInto(t, r, f, f.read(f.plainly(1<<40), tt.off, 2*minMappedRead))
			if res.Cache.Hit != 2*minMappedRead {
				t.Errorf("%+v, want all from the page cache", res.Cache)
			}
			if got := files.copies.Load() > 0; got != tt.mapped {
				t.Errorf("tried from a mapping: %v, want %v", got, tt.mapped)
			}
			if got := files.preads.Load() > 0; got != tt.pread {
				t.Errorf("read by pread: %v, want %v", got, tt.pread)
			}
		})
	}
}

// TestMappedReadHandicap: a mapping that is only a little faster is not used.
func TestMappedReadHandicap(t *testing.T) {
	for took, want := range map[time.Duration]tune.Method{
		900 * time.Microsecond: tune.Default,
		800 * time.Microsecond: tune.Default,
		500 * time.Microsecond: tune.Alternative,
	} {
		var m mappedReads
		m.init(kernel{}, slog.New(slog.DiscardHandler))
		m.add(tune.Default, 4<<20, time.Millisecond)
		m.add(tune.Alternative, 4<<20, took)
		if got := m.choice.Faster(); got != want {
			t.Errorf("%v for a mapped read and 1ms for the other: method %d, want %d", took, got, want)
		}
	}
}

// TestMappedReadTried: the first reads try the mapping, since a model is loaded once;
// short ones never do.
func TestMappedReadTried(t *testing.T) {
	f := newFile(t, noise(1, minMappedRead))
	files := &mappedFiles{data: f.data}
	r := openRing(t, openGPU(t), Config{Workers: 1, sys: files})
	cache := f.plainly(1 << 40)
	for range 16 {
		readInto(t, r, f, f.read(cache, 0, minMappedRead-page))
	}
	if n := files.copies.Load(); n != 0 {
		t.Errorf("%d short reads from a mapping", n)
	}
	for range 8 {
		readInto(t, r, f, f.read(cache, 0, minMappedRead))
	}
	if n := files.copies.Load(); n == 0 {
		t.Error("no read of eight has tried the mapping")
	}
}

// TestCutMapping: a file that others cut short is an error, not a fault.
func TestCutMapping(t *testing.T) {
	if err := copyGuarded(make([]byte, 8*page), cutMapping(t, 8*page)); !errors.Is(err, errFault) {
		t.Errorf("%v, want %v", err, errFault)
	}
	if err := (kernel{}).CopyMapped(new(storage.Stream), make([]byte, page), 0); !errors.Is(err, errNotMapped) {
		t.Errorf("a stream without a file: %v, want %v", err, errNotMapped)
	}
}

// cutMapping is a mapping of a file that was cut to nothing.
func cutMapping(t *testing.T, n int) []byte {
	f := newFile(t, noise(3, n))
	mem, err := unix.Mmap(f.buffered, 0, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Ftruncate(f.buffered, 0); err != nil {
		t.Fatal(err)
	}
	return mem
}
