package gpumem

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/gpumem"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
)

// A fake is an operating system whose node answers as it is told.
type fake struct {
	open   error
	lock   func(*abi.Lock) error
	state  func([]uint64) error
	unlock func(uint64) error
	maps   []*heap
	fails  int // unmaps that fail
	closed int
	sent   []uintptr
}

func (f *fake) FS() fs.FS { return nil }

func (f *fake) Open(path string) (dev.Node, error) {
	if f.open != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: f.open}
	}
	return f, nil
}

func (f *fake) Ioctl(req uintptr, arg unsafe.Pointer) error {
	f.sent = append(f.sent, req)
	switch req {
	case abi.IOCTL_GPUMEM_LOCK:
		return f.lock((*abi.Lock)(arg))
	case abi.IOCTL_GPUMEM_STATE:
		n := (*abi.State)(arg).PageCount
		return f.state(unsafe.Slice((*uint64)(arg), abi.StateSize(n)/8))
	case abi.IOCTL_GPUMEM_UNLOCK:
		return f.unlock((*abi.Unlock)(arg).Handle)
	}
	return syscall.EINVAL
}

func (f *fake) Mmap(off int64, n, _ int) (dev.Mapping, error) {
	if off < 0 || off%PageSize != 0 || n != PageSize {
		return nil, syscall.EINVAL
	}
	m := &heap{f: f}
	f.maps = append(f.maps, m)
	return m, nil
}
func (f *fake) Fd() int      { return 3 }
func (f *fake) Close() error { f.closed++; return nil }

type heap struct {
	f        *fake
	unmapped int
}

func (m *heap) Addr() uintptr { return 0 }
func (m *heap) Len() int      { return PageSize }
func (m *heap) Unmap() error {
	if m.f.fails > 0 {
		m.f.fails--
		return syscall.ENOMEM
	}
	m.unmapped++
	return nil
}

// good answers as the module does.
func good() *fake {
	f := &fake{}
	f.lock = func(l *abi.Lock) error {
		l.Handle, l.PageCount = 0xffff888000000040, (l.Addr+l.Size-l.Addr&^abi.GPU_BOUND_OFFSET)/PageSize
		return nil
	}
	f.state = func(w []uint64) error {
		w[2] = PageSize
		for i := range w[1] {
			w[3+i] = 0x100000 + i*PageSize
		}
		w[3+w[1]] = 0
		return nil
	}
	f.unlock = func(uint64) error { return nil }
	return f
}

func on(o dev.OS) *machine.Machine { return dev.With(&machine.Machine{}, o) }

func mustOpen(t testing.TB, f *fake) *Client {
	t.Helper()
	c, err := Open(on(f))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpen(t *testing.T) {
	if _, err := Open(on(&fake{open: syscall.ENOENT})); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "insmod gpumem.ko") {
		t.Errorf("no node: %v", err)
	}
	if _, err := Open(on(&fake{open: syscall.EACCES})); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("no access: %v", err)
	}
}

// The end is rounded up here, because the module does not and drivers refuse.
func TestLockRounds(t *testing.T) {
	f := good()
	lock := f.lock
	var sent abi.Lock
	f.lock = func(l *abi.Lock) error { sent = *l; return lock(l) }
	c := mustOpen(t, f)
	l, err := c.Lock(0x51234, 0x10000)
	if err != nil {
		t.Fatal(err)
	}
	if (sent.Addr+sent.Size)%PageSize != 0 || sent.Addr != 0x51234 || l.Len() != 2 || l.Addr() != 0x50000 {
		t.Errorf("sent %#x+%#x, got %d pages at %#x", sent.Addr, sent.Size, l.Len(), l.Addr())
	}
	n := len(f.sent)
	for _, tc := range []struct{ addr, size uint64 }{{0x50000, 0}, {0x50000, 1<<64 - 0x50000}, {1 << 63, 1 << 63}, {^uint64(0), 1}} {
		if _, err := c.Lock(gpu.Addr(tc.addr), tc.size); !errors.Is(err, syscall.EINVAL) || len(f.sent) != n {
			t.Errorf("lock %#x+%#x: %v", tc.addr, tc.size, err)
		}
	}
}

func TestBadAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		state func([]uint64) error
		want  error
	}{
		"silence":        {func([]uint64) error { return nil }, syscall.ENOENT},
		"page size":      {func(w []uint64) error { w[2] = 4096; return nil }, syscall.EPROTO},
		"page in a page": {func(w []uint64) error { w[2], w[3] = PageSize, 1; return nil }, syscall.EPROTO},
		"page far out":   {func(w []uint64) error { w[2], w[3] = PageSize, 1<<63; return nil }, syscall.EPROTO},
		"errno":          {func([]uint64) error { return syscall.EFAULT }, syscall.EFAULT},
	} {
		f := good()
		f.state = tc.state
		c := mustOpen(t, f)
		l, err := c.Lock(0x50000, PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Pages(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		if _, err := l.Map(0); !errors.Is(err, tc.want) || len(f.maps) != 0 {
			t.Errorf("%s: map: %v", name, err)
		}
	}
	f := good()
	f.lock = func(l *abi.Lock) error { l.PageCount = 1 << 40; return nil }
	unlocked := 0
	f.unlock = func(uint64) error { unlocked++; return nil }
	c := mustOpen(t, f)
	if _, err := c.Lock(0x50000, PageSize); err == nil || unlocked != 1 {
		t.Errorf("a page count from nowhere: %v, unlocked %d times", err, unlocked)
	}
	f.lock = func(*abi.Lock) error { return syscall.EINVAL }
	if _, err := c.Lock(0x50000, PageSize); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "GPU memory") {
		t.Errorf("refused: %v", err)
	}
}

// The client unmaps before it unlocks, and unlocks when it is closed.
func TestClientCleansUp(t *testing.T) {
	f := good()
	order := ""
	f.unlock = func(uint64) error {
		order += "unlock "
		for _, m := range f.maps {
			if m.unmapped == 0 {
				t.Error("unlocked under a mapping")
			}
		}
		return nil
	}
	c := mustOpen(t, f)
	l, err := c.Lock(0x50000, 2*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := l.Map(i); err != nil {
			t.Fatal(err)
		}
	}
	m, err := l.Map(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Unmap(); err != nil {
		t.Error(err)
	}
	for _, i := range []int{-1, 2} {
		if _, err := l.Map(i); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("map of page %d: %v", i, err)
		}
	}
	f.fails = 1
	if err := l.Unlock(); !errors.Is(err, syscall.ENOMEM) || order != "" {
		t.Errorf("unlock when unmapping fails: %v, %q", err, order)
	}
	if err := c.Close(); err != nil || order != "unlock " || f.closed != 1 {
		t.Errorf("close: %v, %q", err, order)
	}
	sent := len(f.sent)
	if err := l.Unlock(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second unlock: %v", err)
	}
	if _, err := l.Pages(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("pages after unlock: %v", err)
	}
	if _, err := c.Lock(0x50000, 1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("lock after close: %v", err)
	}
	if err := c.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if len(f.sent) != sent {
		t.Error("requests were sent after the end")
	}
}

// Whatever a module answers, the client neither panics nor believes it blindly.
func FuzzAnswers(f *testing.F) {
	f.Add(uint64(1), uint64(PageSize), uint64(0x10000), uint8(0))
	f.Add(uint64(1)<<60, uint64(0), ^uint64(0), uint8(2))
	f.Fuzz(func(t *testing.T, count, size, first uint64, fails uint8) {
		o := good()
		n := uint8(0)
		fail := func() error {
			if n++; fails != 0 && n%fails == 0 {
				return syscall.EIO
			}
			return nil
		}
		o.lock = func(l *abi.Lock) error { l.Handle, l.PageCount = 1, count; return fail() }
		o.state = func(w []uint64) error {
			w[2] = size
			for i := range w[1] {
				w[3+i] = first + i*size
			}
			return fail()
		}
		c := mustOpen(t, o)
		if l, err := c.Lock(0x50000, 3*PageSize); err == nil {
			pages, err := l.Pages()
			if err == nil && (len(pages) != 3 || pages[0]%PageSize != 0) {
				t.Errorf("pages %#x", pages)
			}
			for i := range 4 {
				_, _ = l.Map(i)
			}
		}
		_ = c.Close()
	})
}
