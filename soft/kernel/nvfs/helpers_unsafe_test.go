package nvfs_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	page = 64 << 10
	rw   = unix.PROT_READ | unix.PROT_WRITE
)

// A fixture is a machine with the module loaded, and a directory of files.
type fixture struct {
	*machinetest.Machine
	t    testing.TB
	m    *nvfs.Module
	dir  string
	fail int // pins that are to fail
	bufs []gpu.Addr
	mem  [][]byte
}

func newFixture(t testing.TB, hooks bool, cfg nvfs.Config) *fixture {
	t.Helper()
	w := &fixture{t: t, dir: t.TempDir()}
	w.Machine = machinetest.New(t, soft.Config{Fail: func(site string) bool {
		if site != "mem_info" || w.fail == 0 {
			return false
		}
		w.fail--
		return true
	}})
	cfg.RM, cfg.Points = w.RM, &w.Points
	if hooks {
		cfg.Storage = []nvfs.Storage{&disk{port: w.Near}}
	}
	var err error
	w.m, err = nvfs.New(w.OS, cfg)
	w.check(err)
	return w
}

func (w *fixture) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// close wants everything back.
func (w *fixture) close() {
	w.t.Helper()
	w.m.Close()
	for _, a := range w.bufs {
		w.check(w.GPU.Free(a))
	}
	if n := w.m.Groups(); n != 0 {
		w.t.Errorf("%d mgroups are left", n)
	}
	if err := w.m.Balance(); err != nil {
		w.t.Error(err)
	}
	w.Machine.Close()
	for _, b := range w.mem {
		w.check(unix.Munmap(b))
	}
}

// alloc is GPU memory, cleared.
func (w *fixture) alloc(n uint64) uint64 {
	w.t.Helper()
	a, err := w.GPU.Alloc(gpu.KindDevice, n, 0)
	w.check(err)
	w.bufs = append(w.bufs, a)
	w.check(w.GPU.Fill(a, 0, 4, n/4))
	return uint64(a)
}

// memory is n bytes of the program, from a page boundary on.
func (w *fixture) memory(n int) []byte {
	w.t.Helper()
	b, err := unix.Mmap(-1, 0, n, rw, unix.MAP_SHARED|unix.MAP_ANON)
	w.check(err)
	w.mem = append(w.mem, b)
	return b
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// at is memory of the program at an address.
func at(addr uint64, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}

// pattern is the content of a data file.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + i + 7*(i>>8) + 31*(i>>16))
	}
	return b
}

// file makes a file with bytes at places.
func (w *fixture) file(name string, size int64, parts map[int64][]byte) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	f, err := os.Create(path)
	w.check(err)
	w.check(f.Truncate(size))
	for off, b := range parts {
		_, err := f.WriteAt(b, off)
		w.check(err)
	}
	w.check(f.Sync())
	w.check(f.Close())
	return path
}

// dataFiles are those of the recordings.
func (w *fixture) dataFiles() {
	w.t.Helper()
	const size = 1 << 20
	b := pattern(7, size)
	for _, name := range []string{"a", "w", "bdev"} {
		w.file(name, size, map[int64][]byte{0: b})
	}
	w.file("odd", 100000, map[int64][]byte{0: b[:100000]})
	w.file("empty", 0, nil)
	w.file("sparse", size, map[int64][]byte{page: b[page : 2*page], 3 * page: b[3*page : 4*page]})
	f, err := os.OpenFile(w.file("fa", 0, nil), os.O_RDWR, 0)
	w.check(err)
	w.check(unix.Fallocate(int(f.Fd()), 0, 0, size))
	w.check(f.Close())
}

// ioctl sends an argument and returns it as it is afterwards.
func ioctl(n dev.Node, req uintptr, encode func([]byte)) (abi.Arg, error) {
	var a abi.Arg
	encode(a[:])
	err := n.Ioctl(req, unsafe.Pointer(&a))
	return a, err
}

// An asyncGate holds asynchronous transfers until somebody opens it.
type asyncGate struct {
	mu sync.Mutex
	ch chan struct{}
}

func (g *asyncGate) hook(name string, _ uint64) {
	if name != "nvfs.async" {
		return
	}
	g.mu.Lock()
	ch := g.ch
	g.mu.Unlock()
	<-ch
}

func (g *asyncGate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ch = make(chan struct{})
}

func (g *asyncGate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ch:
	default:
		close(g.ch)
	}
}

// firstDiff says where two contents differ.
func firstDiff(got, want []byte) string {
	if bytes.Equal(got, want) {
		return ""
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %#x, want %#x", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d bytes, want %d", len(got), len(want))
}
