package libnvm

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*Device, *soft.Machine, dev.OS) {
	t.Helper()
	m, err := soft.New(soft.Config{Memory: 2 << 20, Heap: true, Drives: []soft.Drive{{}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	o := dev.Of(m)
	d, err := Open(o, "/dev/libnvm0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			t.Error(err)
		}
		if err := errors.Join(m.InUse(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, m, o
}

// memory is n pages, the first at a multiple of 64 KiB.
func memory(n int) []byte {
	b := make([]byte, n*abi.HOST_PAGE_SIZE+abi.GPU_PAGE_SIZE)
	return b[-uintptr(unsafe.Pointer(&b[0]))&(abi.GPU_PAGE_SIZE-1):][:n*abi.HOST_PAGE_SIZE]
}

// TestAnyGoroutine maps and unmaps from goroutines on threads of their own.
func TestAnyGoroutine(t *testing.T) {
	d, m, _ := open(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			mem := memory(3)
			for range 20 {
				var pages []uint64
				var err error
				step := make(chan struct{})
				go func() { pages, err = d.MapHost(mem); close(step) }()
				<-step
				if err != nil || len(pages) != 3 || slices.Contains(pages, nowhere) {
					t.Errorf("%v, %v", pages, err)
				}
				if err := d.Unmap(addrOf(mem)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := m.Fabric().Usage().Mappings; n != 0 {
		t.Errorf("%d maps are left", n)
	}
}

// TestAmbiguousMaps refuses a map that the module would mistake for another.
func TestAmbiguousMaps(t *testing.T) {
	d, m, _ := open(t)
	mem := memory(32)
	if _, err := d.MapHost(mem[:abi.HOST_PAGE_SIZE]); err != nil {
		t.Fatal(err)
	}
	if _, err := d.MapHost(mem[5*abi.HOST_PAGE_SIZE:][:abi.HOST_PAGE_SIZE]); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a map in the same 64 KiB: %v", err)
	}
	if _, err := d.MapHost(mem[16*abi.HOST_PAGE_SIZE:]); err != nil {
		t.Errorf("a map in the next 64 KiB: %v", err)
	}
	if n := m.Fabric().Usage().Mappings; n != 2 {
		t.Errorf("%d maps, want 2", n)
	}
	if err := d.Close(); err != nil { // which unmaps both
		t.Error(err)
	}
}

func TestPartlyThere(t *testing.T) {
	d, m, _ := open(t)
	b, err := unix.Mmap(-1, 0, 4*abi.HOST_PAGE_SIZE, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	if err := unix.Mprotect(b[3*abi.HOST_PAGE_SIZE:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if _, err := d.MapHost(b); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("memory that is partly there: %v", err)
	}
	if n := m.Fabric().Usage().Mappings; n != 0 {
		t.Errorf("%d maps are left", n)
	}
	if _, err := d.MapHost(b[:3*abi.HOST_PAGE_SIZE]); err != nil {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	d, m, o := open(t)
	mem := memory(2)
	for name, err := range map[string]error{
		"nothing":        second(d.MapHost(nil)),
		"half a page":    second(d.MapHost(mem[:2048])),
		"inside a page":  second(d.MapHost(mem[512:][:abi.HOST_PAGE_SIZE])),
		"GPU, 0 bytes":   second(d.MapGPU(64<<10, 0)),
		"GPU, odd bytes": second(d.MapGPU(64<<10, 4096)),
		"GPU, odd place": second(d.MapGPU(4096, 64<<10)),
		"without CUDA":   second(d.MapGPU(64<<10, 64<<10)),
		"not mapped":     d.Unmap(addrOf(mem)),
		"large BAR":      secondMap(d.BAR(1 << 30)),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want %v", name, err, syscall.EINVAL)
		}
	}
	if n := m.Fabric().Usage().Mappings; n != 0 {
		t.Errorf("%d maps were made", n)
	}
	if got := Paths(o); !slices.Equal(got, []string{"/dev/libnvm0", "/dev/libnvm1"}) {
		t.Errorf("nodes: %v", got)
	}
	if _, err := Open(o, "/dev/libnvm9"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a node that is not there: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.MapHost(mem); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("map after close: %v", err)
	}
	if err := d.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("close twice: %v", err)
	}
}

func second(_ []uint64, err error) error       { return err }
func secondMap(_ dev.Mapping, err error) error { return err }
