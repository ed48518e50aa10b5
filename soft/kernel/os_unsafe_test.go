package kernel

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"unsafe"

	"github.com/culvert-io/culvert/internal/dev"
)

// counter is a module with nothing but a life.
type counter struct{ opened, released int }

type counterFile struct{ c *counter }

func (f counterFile) Ioctl(req uintptr, _ unsafe.Pointer) error {
	if req != 1 {
		return syscall.ENOTTY
	}
	return nil
}

func (f counterFile) Mmap(_ int64, n, _ int) (Mapping, error) {
	return heapMapping(make([]byte, n)), nil
}
func (f counterFile) Release() { f.c.released++ }

type heapMapping []byte

func (m heapMapping) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m))) }
func (m heapMapping) Len() int      { return len(m) }
func (m heapMapping) Unmap() error  { return nil }

func newOS(t *testing.T) (*OS, *counter) {
	t.Helper()
	o, c := New(fstest.MapFS{}), &counter{}
	err := o.Register("/dev/count", func() (File, error) { c.opened++; return counterFile{c}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return o, c
}

func TestNodeLife(t *testing.T) {
	o, c := newOS(t)
	n, err := dev.Of(o).Open("/dev/count")
	if err != nil {
		t.Fatal(err)
	}
	if f := o.File(n.Fd()); f != (counterFile{c}) {
		t.Errorf("number %d leads to %v", n.Fd(), f)
	}
	if err := n.Ioctl(1, nil); err != nil {
		t.Error(err)
	}
	err = n.Ioctl(2, nil)
	if pe, ok := errors.AsType[*fs.PathError](err); !ok || pe.Path != "/dev/count" || !errors.Is(err, syscall.ENOTTY) {
		t.Errorf("unknown ioctl: %v", err)
	}
	m, err := n.Mmap(0, 4096, 3)
	if err != nil {
		t.Fatal(err)
	}
	fd := n.Fd()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if o.File(fd) != nil || o.OpenFiles() != 0 {
		t.Error("a closed node is still in the table")
	}
	if c.released != 0 {
		t.Error("the file was released under its mapping")
	}
	for range 2 {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
	if c.opened != 1 || c.released != 1 {
		t.Errorf("opened %d times, released %d times", c.opened, c.released)
	}
	for name, err := range map[string]error{"ioctl": n.Ioctl(1, nil), "close": n.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
	if _, err := n.Mmap(0, 1, 3); !errors.Is(err, fs.ErrClosed) || n.Fd() != -1 {
		t.Errorf("mmap after close: %v, number %d", err, n.Fd())
	}
}

func TestOpen(t *testing.T) {
	o, _ := newOS(t)
	if _, err := dev.Of(o).Open("/dev/null"); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a node of the host: %v", err)
	}
	if err := o.Register("/dev/count", nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second registration: %v", err)
	}
	refuse := func() (File, error) { return nil, syscall.EBUSY }
	if err := o.Register("/dev/busy", refuse); err != nil {
		t.Fatal(err)
	}
	if _, err := dev.Of(o).Open("/dev/busy"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("refused open: %v", err)
	}
	o.Unregister("/dev/count")
	if _, err := dev.Of(o).Open("/dev/count"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unregistered node: %v", err)
	}
	if n := o.OpenFiles(); n != 0 {
		t.Errorf("%d nodes are open", n)
	}
}

func TestFileSystem(t *testing.T) {
	base := fstest.MapFS{
		"proc/version":               {Data: []byte("base")},
		"proc/driver/nvidia/version": {Data: []byte("the host's")},
		"sys/block/vda":              {Mode: fs.ModeSymlink, Data: []byte("../devices/vda")},
		"sys/devices/vda":            {Data: []byte("disk")},
	}
	o := New(base)
	calls := 0
	o.Mount("proc/driver/nvidia", Tree{
		"version":        func() []byte { calls++; return []byte("emulated") },
		"gpus/0/details": func() []byte { return nil },
	})
	o.Mount("sys/module/nvidia", Tree{"version": func() []byte { return []byte("580") }})
	if err := fstest.TestFS(o.FS(), "proc/version", "proc/driver/nvidia/version", "proc/driver/nvidia/gpus/0/details",
		"sys/module/nvidia/version", "sys/block/vda"); err != nil {
		t.Error(err)
	}
	calls = 0
	for want := 1; want <= 2; want++ {
		b, err := fs.ReadFile(o.FS(), "proc/driver/nvidia/version")
		if err != nil || string(b) != "emulated" || calls != want {
			t.Errorf("read %q, %v, made %d times", b, err, calls)
		}
	}
	if s, err := fs.ReadLink(o.FS(), "sys/block/vda"); err != nil || s != "../devices/vda" {
		t.Errorf("link leads to %q, %v", s, err)
	}
	if _, err := fs.Stat(o.FS(), "proc/driver/nvidia/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	list, err := fs.ReadDir(o.FS(), ".")
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); err != nil || got != "proc sys" {
		t.Errorf("the root holds %q, %v", got, err)
	}
}

func TestHostAsBase(t *testing.T) {
	o := New(os.DirFS("/"))
	o.Mount("proc/driver/nvidia", Tree{"version": func() []byte { return []byte("emulated") }})
	for _, name := range []string{"proc/self/mountinfo", "proc/driver/nvidia/version"} {
		if b, err := fs.ReadFile(o.FS(), name); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}
