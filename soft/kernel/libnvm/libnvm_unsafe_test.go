package libnvm_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/libnvm"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/libnvm"
	"github.com/culvert-io/culvert/soft/pcie"
)

const page = 4096

// A fixture is the module with two drives and a GPU.
type fixture struct {
	*testing.T
	s    *machinetest.Machine
	dev  gpu.Device
	os   *kernel.OS
	m    *libnvm.Module
	node dev.Node
	mem  []byte // 32 pages, the first at a multiple of 64 KiB
}

func newFixture(t *testing.T, cuda bool) *fixture {
	t.Helper()
	// The module knows threads: a test is one.
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r := &fixture{T: t}
	r.s = machinetest.New(t, soft.Config{Heap: true, Drives: []soft.Drive{{}, {}}, IOMMU: pcie.Translating})
	r.dev, r.os = r.s.GPU, r.s.OS
	cfg := libnvm.Config{}
	if cuda {
		cfg.RM = r.s.RM
	}
	var err error
	r.m, err = libnvm.New(r.os, cfg)
	r.check(err)
	for _, d := range r.s.Drives() {
		r.check(r.m.Bind(d))
	}
	r.node, err = dev.Of(r.os).Open("/dev/libnvm0")
	r.check(err)
	b := make([]byte, 48*page)
	r.mem = b[-uintptr(unsafe.Pointer(&b[0]))&(abi.GPU_PAGE_SIZE-1):][:32*page]
	t.Cleanup(func() {
		r.check(r.node.Close())
		r.m.Close()
		if n := r.m.Maps(); n != 0 {
			t.Errorf("%d maps are left", n)
		}
		r.s.Close()
	})
	return r
}

func (r *fixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// call is a map request.
func (r *fixture) call(req uintptr, vaddr uint64, pages int) ([]uint64, error) {
	out := make([]uint64, max(pages, 1))
	arg := abi.Map{VaddrStart: vaddr, NPages: uint64(pages), Ioaddrs: unsafe.Pointer(&out[0])}
	return out, r.node.Ioctl(req, unsafe.Pointer(&arg))
}

func (r *fixture) host(b []byte) []uint64 {
	r.Helper()
	a, err := r.call(abi.NVM_MAP_HOST_MEMORY, addr(b), len(b)/page)
	r.check(err)
	return a
}

func (r *fixture) unmap(vaddr uint64) error {
	return r.node.Ioctl(abi.NVM_UNMAP_MEMORY, unsafe.Pointer(&vaddr))
}

// reach writes through the drive's port and reports whether that worked.
func (r *fixture) reach(bus uint64, text string) bool {
	e := pcie.Engine{Port: r.s.Drives()[0].Function()}
	_, err := e.Write([]pcie.Range{{Bus: bus, Len: len(text)}}, []byte(text))
	return err == nil
}

func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestOneAddressPerPage maps host memory and writes to each of its pages.
func TestOneAddressPerPage(t *testing.T) {
	r := newFixture(t, true)
	a := r.host(r.mem[:3*page])
	for i, bus := range a {
		if !r.reach(bus+8, string(rune('a'+i))) || r.mem[i*page+8] != byte('a'+i) {
			t.Errorf("page %d at %#x is not the program's", i, bus)
		}
	}
	// An address inside a page means the page.
	r.check(r.unmap(addr(r.mem) + 100))
	if r.reach(a[0], "x") {
		t.Error("memory is within reach after unmap")
	}
	wantErrno(t, "unmap twice", r.unmap(addr(r.mem)), syscall.EINVAL)
	b, err := r.call(abi.NVM_MAP_HOST_MEMORY, addr(r.mem)+page+5, 1)
	r.check(err)
	if !r.reach(b[0], "in the second") || !bytes.HasPrefix(r.mem[page:], []byte("in the second")) {
		t.Error("an address inside a page was not rounded down")
	}
	r.check(r.unmap(addr(r.mem) + page))
}

func TestBadRequests(t *testing.T) {
	r := newFixture(t, true)
	for _, c := range []struct {
		name  string
		req   uintptr
		vaddr uint64
		pages int
		want  syscall.Errno
	}{
		{"no pages", abi.NVM_MAP_HOST_MEMORY, addr(r.mem), 0, syscall.EINVAL},
		{"no pages of a GPU", abi.NVM_MAP_DEVICE_MEMORY, addr(r.mem), 0, syscall.EINVAL},
		{"nothing there", abi.NVM_MAP_HOST_MEMORY, 0, 1, syscall.EFAULT},
		{"nothing there either", abi.NVM_MAP_HOST_MEMORY, 1 << 62, 1, syscall.EFAULT},
		{"host memory as the GPU's", abi.NVM_MAP_DEVICE_MEMORY, addr(r.mem), 1, syscall.EINVAL},
	} {
		_, err := r.call(c.req, c.vaddr, c.pages)
		wantErrno(t, c.name, err, c.want)
	}
	arg := abi.Map{VaddrStart: addr(r.mem), NPages: 1 << 60, Ioaddrs: unsafe.Pointer(&r.mem[0])}
	wantErrno(t, "too many pages", r.node.Ioctl(abi.NVM_MAP_HOST_MEMORY, unsafe.Pointer(&arg)), syscall.ENOMEM)
	arg = abi.Map{VaddrStart: addr(r.mem), NPages: 1}
	wantErrno(t, "no room for addresses", r.node.Ioctl(abi.NVM_MAP_HOST_MEMORY, unsafe.Pointer(&arg)), syscall.EFAULT)
	for _, req := range []uintptr{abi.NVM_MAP_HOST_MEMORY, abi.NVM_UNMAP_MEMORY} {
		wantErrno(t, "no argument", r.node.Ioctl(req, nil), syscall.EFAULT)
	}
	wantErrno(t, "unknown request", r.node.Ioctl(0x40088004, unsafe.Pointer(&arg)), syscall.EINVAL)
	if n := r.m.Maps(); n != 0 {
		t.Errorf("%d maps were made", n)
	}
	_, err := r.node.Mmap(0, int(r.s.Drives()[0].BARSize())+page, unix.PROT_READ)
	wantErrno(t, "more than BAR0", err, syscall.EINVAL)
	_, err = r.node.Mmap(page, page, unix.PROT_READ)
	wantErrno(t, "not from its beginning", err, syscall.EINVAL)
}

func TestBuiltWithoutCUDA(t *testing.T) {
	r := newFixture(t, false)
	_, err := r.call(abi.NVM_MAP_DEVICE_MEMORY, 64<<10, 1)
	wantErrno(t, "device memory", err, syscall.EINVAL)
}

// TestMapsBelongToThreads has another thread of the same process unmap.
func TestMapsBelongToThreads(t *testing.T) {
	r := newFixture(t, true)
	r.host(r.mem[:page])
	other := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		other <- r.unmap(addr(r.mem))
	}()
	wantErrno(t, "unmap by another thread", <-other, syscall.EINVAL)
	r.check(r.unmap(addr(r.mem)))
}

// TestMapsAreMixedUp shows how the module finds the wrong map.
func TestMapsAreMixedUp(t *testing.T) {
	r := newFixture(t, true)
	first := r.host(r.mem[:page])
	second := r.host(r.mem[page : 2*page])
	r.check(r.unmap(addr(r.mem) + page))
	if r.reach(first[0], "x") || !r.reach(second[0], "x") {
		t.Error("the younger map was unmapped, though the older one comes first and begins in the same 64 KiB")
	}
	r.check(r.unmap(addr(r.mem) + page))
}

// TestPartlyThere maps memory that ends early.
func TestPartlyThere(t *testing.T) {
	r := newFixture(t, true)
	b, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	r.check(err)
	defer unix.Munmap(b)
	r.check(unix.Mprotect(b[2*page:], unix.PROT_READ))
	out := []uint64{1, 2, 3, 4}
	arg := abi.Map{VaddrStart: addr(b), NPages: 4, Ioaddrs: unsafe.Pointer(&out[0])}
	r.check(r.node.Ioctl(abi.NVM_MAP_HOST_MEMORY, unsafe.Pointer(&arg)))
	if out[0] == 1 || out[1] == 2 || !slices.Equal(out[2:], []uint64{3, 4}) {
		t.Errorf("addresses %v, want two of them", out)
	}
	r.check(r.unmap(addr(b)))
}

// TestMapsOutliveTheFile closes the node.
func TestMapsOutliveTheFile(t *testing.T) {
	r := newFixture(t, true)
	a := r.host(r.mem[:page])
	r.check(r.node.Close())
	if !r.reach(a[0], "x") {
		t.Error("the map went with the file")
	}
	var err error
	r.node, err = dev.Of(r.os).Open("/dev/libnvm1") // there is one list for all
	r.check(err)
	r.check(r.unmap(addr(r.mem)))
	r.host(r.mem[:page]) // left for the unloading of the module
}

func TestDeviceMemory(t *testing.T) {
	r := newFixture(t, true)
	const n = 4 << 20
	base, err := r.dev.Alloc(gpu.KindDevice, n, 0)
	r.check(err)
	a, err := r.call(abi.NVM_MAP_DEVICE_MEMORY, uint64(base)+500, 3)
	r.check(err)
	for i, bus := range a {
		if !r.reach(bus, "to the GPU") {
			t.Errorf("page %d at %#x is out of reach", i, bus)
		}
		got := make([]byte, 10)
		r.check(r.dev.CopyOut(got, base+gpu.Addr(i*abi.GPU_PAGE_SIZE)))
		if string(got) != "to the GPU" {
			t.Errorf("page %d holds %q", i, got)
		}
	}
	r.check(r.unmap(uint64(base)))
	a, err = r.call(abi.NVM_MAP_DEVICE_MEMORY, uint64(base), 1)
	r.check(err)
	r.check(r.dev.Free(base))
	if r.m.Maps() != 0 || r.reach(a[0], "x") {
		t.Error("the map is left, though its memory was freed")
	}
	wantErrno(t, "unmap of memory that was freed", r.unmap(uint64(base)), syscall.EINVAL)
	if n := r.s.RM.Live(); n != 0 {
		t.Errorf("%d pins are left", n)
	}
}

func TestTwoModules(t *testing.T) {
	r := newFixture(t, true)
	m, err := libnvm.New(r.os, libnvm.Config{})
	r.check(err)
	if err := m.Bind(r.s.Drives()[0]); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second module: %v", err)
	}
	if _, err := libnvm.New(r.os, libnvm.Config{First: func() error { return nil }}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second module with a node of its own: %v", err)
	}
}
