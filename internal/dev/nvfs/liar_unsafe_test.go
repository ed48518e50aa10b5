package nvfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
)

// A liar is a module that answers as it is told. MAP succeeds.
type liar struct {
	modules string
	openErr error
	answer  func(l *liar, req uintptr, a *abi.Arg) error
	meta    []byte // the end-fence page
	calls   int
	mapped  int
	closed  int
}

func (l *liar) FS() fs.FS { return fstest.MapFS{abi.ProcDir + "/modules": {Data: []byte(l.modules)}} }

func (l *liar) Open(path string) (dev.Node, error) {
	if l.openErr != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: l.openErr}
	}
	return l, nil
}

func (l *liar) Ioctl(req uintptr, arg unsafe.Pointer) error {
	a := (*abi.Arg)(arg)
	if req == abi.NVFS_IOCTL_MAP {
		var m abi.MapArgs
		m.Decode(a[:])
		l.meta = unsafe.Slice(*(**byte)(unsafe.Pointer(&m.EndFenceAddr)), abi.MetaSize)
		return nil
	}
	l.calls++
	return l.answer(l, req, a)
}

type liarMapping struct {
	l *liar
	b []byte
}

func (l *liar) Mmap(_ int64, n, _ int) (dev.Mapping, error) {
	l.mapped++
	return &liarMapping{l, make([]byte, n)}, nil
}

func (m *liarMapping) Addr() uintptr { return uintptr(unsafe.Pointer(&m.b[0])) }
func (m *liarMapping) Len() int      { return len(m.b) }
func (m *liarMapping) Unmap() error  { m.l.mapped--; return nil }

func (l *liar) Fd() int      { return 3 }
func (l *liar) Close() error { l.closed++; return nil }

// sparse puts holes into the page.
func (l *liar) sparse(s abi.Sparse) { copy(l.meta[abi.MetaState:], abi.AppendSparse(nil, &s)) }

// ok answers with a number of bytes.
func ok(a *abi.Arg, n int64) error { a.SetReturn(n); return nil }

const (
	kib64 = 64 << 10
	size  = 1 << 20
	base  = 1 << 40 // of the GPU memory, which nobody touches
)

// sparseFile has data in its first 64 KiB, zeros that were written in the next, and a
// hole.
func sparseFile(t *testing.T) *File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(f.Close(), plain.Close()) })
	data := bytes.Repeat([]byte{7}, 2*kib64)
	clear(data[kib64:])
	if _, err := plain.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := plain.Truncate(size); err != nil {
		t.Fatal(err)
	}
	n, err := NewFile(f.Name(), int(f.Fd()), int(plain.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

type cleared struct{ addr, n uint64 }

func TestReadBelievesNothing(t *testing.T) {
	hole := func(off int64, holes ...abi.Hole) func(*liar, uintptr, *abi.Arg) error {
		return func(l *liar, _ uintptr, a *abi.Arg) error {
			l.sparse(abi.Sparse{State: abi.META_SPARSE, Offset: off, Holes: holes})
			return ok(a, kib64)
		}
	}
	f := sparseFile(t)
	for name, tc := range map[string]struct {
		answer func(*liar, uintptr, *abi.Arg) error
		off    int64
		is     error  // the error holds it
		says   string // and this
		zeroed []cleared
	}{
		"data": {answer: func(_ *liar, _ uintptr, a *abi.Arg) error { return ok(a, kib64) }},
		"hole of the file": {
			answer: hole(2*kib64, abi.Hole{Start: 0, Blocks: 3}, abi.Hole{Start: 5, Blocks: 1}), off: 2 * kib64,
			zeroed: []cleared{{base, 3 * 4096}, {base + 5*4096, 4096}},
		},
		// Unwritten blocks with clean pages in the cache are data to SEEK_DATA.
		"zeros as a hole":    {answer: hole(kib64, abi.Hole{Start: 0, Blocks: 16}), off: kib64, zeroed: []cleared{{base, kib64}}},
		"data as a hole":     {answer: hole(0, abi.Hole{Start: 0, Blocks: 16}), is: ErrNotDirect},
		"hole elsewhere":     {answer: hole(4*kib64, abi.Hole{Start: 0, Blocks: 16}), off: 2 * kib64, says: "was not read"},
		"hole before":        {answer: hole(0, abi.Hole{Start: 0, Blocks: 16}), off: 2 * kib64, says: "was not read"},
		"overlapping holes":  {answer: hole(0, abi.Hole{Start: 0, Blocks: 16}, abi.Hole{Start: 8, Blocks: 2}), says: "hole 1"},
		"sparse, no holes":   {answer: hole(0), says: "0 holes"},
		"more than asked":    {answer: func(_ *liar, _ uintptr, a *abi.Arg) error { return ok(a, size) }, says: "moved 1048576 bytes"},
		"less than nothing":  {answer: func(_ *liar, _ uintptr, a *abi.Arg) error { return ok(a, -5) }, says: "moved -5 bytes"},
		"error in the union": {answer: func(_ *liar, _ uintptr, a *abi.Arg) error { a.SetReturn(-int64(syscall.ESTALE)); return syscall.EPERM }, is: syscall.ESTALE},
		"plain error":        {answer: func(*liar, uintptr, *abi.Arg) error { return syscall.ENOMEM }, is: syscall.ENOMEM},
		"EPERM itself":       {answer: func(*liar, uintptr, *abi.Arg) error { return syscall.EPERM }, is: syscall.EPERM},
		"died": {answer: func(l *liar, _ uintptr, a *abi.Arg) error {
			binary.LittleEndian.PutUint32(l.meta[abi.MetaState:], abi.META_DIED)
			return ok(a, kib64)
		}, is: ErrRevoked},
	} {
		var zeroed []cleared
		l := &liar{answer: tc.answer}
		c, err := Open(l)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Register(Config{Addr: base, Size: size, Zero: func(a, n uint64) error {
			zeroed = append(zeroed, cleared{a, n})
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := b.Read(f, tc.off, kib64, 0)
		good := tc.is == nil && tc.says == ""
		switch {
		case good != (err == nil), good && n != kib64, !good && n != 0:
			t.Errorf("%s: %d, %v", name, n, err)
		case tc.is != nil && !errors.Is(err, tc.is), tc.says != "" && !strings.Contains(err.Error(), tc.says):
			t.Errorf("%s: %v", name, err)
		}
		if len(zeroed) != len(tc.zeroed) {
			t.Errorf("%s: zeroed %v, want %v", name, zeroed, tc.zeroed)
		}
		for i := range min(len(zeroed), len(tc.zeroed)) {
			if zeroed[i] != tc.zeroed[i] {
				t.Errorf("%s: zeroed %v, want %v", name, zeroed, tc.zeroed)
			}
		}
		if err := c.Close(); err != nil || l.mapped != 0 || l.closed != 1 {
			t.Errorf("%s: close: %v, %d mappings left, closed %d times", name, err, l.mapped, l.closed)
		}
	}
}

// The holes of an earlier READ stay in the page: they are not those of the next.
func TestStaleHolesAreForgotten(t *testing.T) {
	f := sparseFile(t)
	l := &liar{answer: func(l *liar, _ uintptr, a *abi.Arg) error {
		if l.calls == 1 {
			l.sparse(abi.Sparse{State: abi.META_SPARSE, Offset: 2 * kib64, Holes: []abi.Hole{{Start: 0, Blocks: 16}}})
		}
		return ok(a, kib64)
	}}
	c, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	zeroed := 0
	b, err := c.Register(Config{Addr: base, Size: size, Zero: func(uint64, uint64) error { zeroed++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{2 * kib64, 0} {
		if _, err := b.Read(f, off, kib64, 0); err != nil || zeroed != 1 {
			t.Errorf("at %d: %v, zeroed %d times", off, err, zeroed)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if _, err := c.Register(Config{Addr: base, Size: size}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("register after close: %v", err)
	}
}

// Nothing is written unless a driver has registered, and a WRITE that took
// nothing from the GPU is an error.
func TestWriteWantsADriver(t *testing.T) {
	f := sparseFile(t)
	for modules, tc := range map[string]struct {
		answers int64
		calls   int
		want    error
	}{
		"wekafsio: 1\n":             {kib64, 0, ErrNotDirect},
		"":                          {kib64, 0, ErrNotDirect},
		"nvme: 1.0\nwekafsio: 1\n":  {kib64, 1, nil},
		"nvme: (null)\nwekafsio: 1": {0, 1, ErrNotDirect},
	} {
		l := &liar{modules: modules, answer: func(_ *liar, _ uintptr, a *abi.Arg) error { return ok(a, tc.answers) }}
		c, err := Open(l)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Register(Config{Addr: base, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Write(f, 0, kib64, 0); !errors.Is(err, tc.want) || l.calls != tc.calls {
			t.Errorf("%q: %v after %d requests", modules, err, l.calls)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	for cause, says := range map[syscall.Errno]string{syscall.ENOENT: "modprobe", syscall.EACCES: "access", syscall.EINVAL: "invalid"} {
		if _, err := Open(&liar{openErr: cause}); !errors.Is(err, cause) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}

// A transfer allocates nothing.
func TestReadDoesNotAllocate(t *testing.T) {
	f := sparseFile(t)
	l := &liar{answer: func(_ *liar, _ uintptr, a *abi.Arg) error { return ok(a, kib64) }}
	c, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Register(Config{Addr: base, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(100, func() {
		if _, err := b.Read(f, 0, kib64, 0); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations for each READ", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A block device has no SEEK_DATA, and its driver may have no hooks: the module then
// reports data as a hole. That is no error of the request, but no transfer either.
func TestHoleWithoutSeekData(t *testing.T) {
	f := sparseFile(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	noSeek := *f
	noSeek.look = int(r.Fd()) // lseek fails with ESPIPE, pread too
	if _, err := noSeek.hole(0, kib64); !errors.Is(err, syscall.ESPIPE) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	for off, want := range map[int64]bool{0: false, kib64: true, 2 * kib64: true} {
		if got, err := f.zeros(off, kib64); got != want || err != nil {
			t.Errorf("zeros at %d: %v, %v", off, got, err)
		}
	}
	if got, err := f.zeros(kib64-4096, 8192); got || err != nil {
		t.Errorf("data and zeros: %v, %v", got, err)
	}
}

// The module lists 768 holes and ends its answer before the next one: the client goes
// on from there.
func TestMoreHolesThanThePageLists(t *testing.T) {
	const blocks = 2 * abi.MAX_HOLES
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2*blocks*4096); err != nil {
		t.Fatal(err)
	}
	d, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("needs a file system with O_DIRECT: %v", err)
	}
	defer d.Close()
	f, err := NewFile(path, int(d.Fd()), int(d.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{answer: func(l *liar, _ uintptr, a *abi.Arg) error {
		var in abi.IOArgs
		in.Decode(a[:])
		var s abi.Sparse
		n := min(int64(in.Size), (blocks+1)*4096)
		for b := int64(1); b < n/4096 && len(s.Holes) < abi.MAX_HOLES; b += 2 {
			s.Holes = append(s.Holes, abi.Hole{Start: uint16(b), Blocks: 1})
		}
		if s.State, s.Offset = abi.META_SPARSE, in.Offset; len(s.Holes) > 0 {
			l.sparse(s)
		}
		return ok(a, n)
	}}
	c, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	zeroed := 0
	b, err := c.Register(Config{Addr: base, Size: 2 * blocks * 4096, Zero: func(_, n uint64) error { zeroed += int(n); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Read(f, 0, 2*blocks*4096, 0); n != 2*blocks*4096 || err != nil || l.calls < 2 || zeroed < abi.MAX_HOLES*4096 {
		t.Errorf("read %d bytes with %d requests, %v, zeroed %d", n, l.calls, err, zeroed)
	}
}

// The first READ of a buffer runs alone, later ones do not.
func TestFirstReadsRunAlone(t *testing.T) {
	f := sparseFile(t)
	var alone []bool
	l := &liar{answer: func(_ *liar, _ uintptr, a *abi.Arg) error {
		free := firstReads.TryLock()
		if free {
			firstReads.Unlock()
		}
		alone = append(alone, !free)
		return ok(a, kib64)
	}}
	c, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		b, err := c.Register(Config{Addr: base, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := b.Read(f, 0, kib64, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []bool{true, false, true, false}; !slices.Equal(alone, want) {
		t.Errorf("READs that ran alone: %v, want %v", alone, want)
	}
}

// A first READ that fails may have failed before the module mapped the buffer: the next one
// runs alone, too.
func TestReadAfterAFailedOneRunsAlone(t *testing.T) {
	f := sparseFile(t)
	var alone []bool
	l := &liar{answer: func(_ *liar, _ uintptr, a *abi.Arg) error {
		free := firstReads.TryLock()
		if free {
			firstReads.Unlock()
		}
		if alone = append(alone, !free); len(alone) == 1 {
			return syscall.ENOMEM
		}
		return ok(a, kib64)
	}}
	c, err := Open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := c.Register(Config{Addr: base, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := b.Read(f, 0, kib64, 0); (err != nil) != (i == 0) {
			t.Fatal(i, err)
		}
	}
	if want := []bool{true, true, false}; !slices.Equal(alone, want) {
		t.Errorf("READs that ran alone: %v, want %v", alone, want)
	}
}

// A transfer whose memory is freed has one error, also if the module says so late.
func TestRevokedLate(t *testing.T) {
	f := sparseFile(t)
	for _, cause := range []syscall.Errno{syscall.EIO, syscall.EBUSY} {
		l := &liar{answer: func(_ *liar, _ uintptr, a *abi.Arg) error { a.SetReturn(-int64(cause)); return syscall.EPERM }}
		c, err := Open(l)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Register(Config{Addr: base, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		waits := 0
		sleep = func(time.Duration) {
			if waits++; waits == 3 {
				binary.LittleEndian.PutUint32(l.meta[abi.MetaState:], abi.META_DIED)
			}
		}
		if _, err := b.Read(f, 0, kib64, 0); !errors.Is(err, ErrRevoked) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
		sleep = time.Sleep
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
