package nvmerdma_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
	"github.com/culvert-io/culvert/soft/nic"
	"github.com/culvert-io/culvert/softtest"
)

// A tap passes requests of nvidia-fs to the module as a file system may that puts pages
// together in its own way.
type tap struct {
	*nvmerdma.Module
	change func(*nvfs.Request)
}

func (t *tap) Submit(r *nvfs.Request) error {
	below := *r
	if t.change != nil {
		t.change(&below)
	}
	return t.Module.Submit(&below)
}

// ordinary is memory that belongs to no buffer of nvidia-fs.
func ordinary(t *testing.T, n int, fill byte) ([]nvfs.Page, []byte) {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n*nvfs.BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	pages := make([]nvfs.Page, n)
	for i := range pages {
		pages[i].Mem = mem[i*nvfs.BlockSize : (i+1)*nvfs.BlockSize]
	}
	for i := range mem {
		mem[i] = fill
	}
	return pages, mem
}

// Ordinary memory is mapped in the ordinary way, and its bytes are host memory's.
func TestOrdinaryMemory(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.read()
	f, err := os.OpenFile(r.path, os.O_RDWR|unix.O_DIRECT, 0)
	r.check(err)
	defer f.Close()
	const n = 70 // blocks: three commands
	before := r.Fabric().HostTraffic()
	out, want := ordinary(t, n, 0x5a)
	r.check(r.remote.Submit(&nvfs.Request{FD: int(f.Fd()), Write: true, Off: 8192, Pages: out}))
	in, got := ordinary(t, n, 0)
	r.check(r.remote.Submit(&nvfs.Request{FD: int(f.Fd()), Off: 8192, Pages: in}))
	if !bytes.Equal(got, want) {
		t.Error("the bytes come back otherwise")
	}
	copy(r.data[8192:], want)
	r.fileHolds(r.data)
	if s := r.remote.Stats(); s.CPU != 6 {
		t.Errorf("%d commands with ordinary memory", s.CPU)
	}
	if host := r.Fabric().HostTraffic(); host.Written-before.Written < n*nvfs.BlockSize {
		t.Errorf("host memory has seen %+v after %+v", host, before)
	}
	if err := r.remote.Submit(&nvfs.Request{FD: -1, Pages: in}); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a file that is not open: %v", err)
	}
}

// A request with pages of both kinds fails as a whole command, and changes neither memory.
func TestMixedPages(t *testing.T) {
	fab := newRig(t, soft.Config{}).remote.Fabrics()
	m := softtest.Of(t, softtest.New(t, soft.Config{Without: []string{"nvidia-fs"}, Memory: 16 << 20, Heap: raceEnabled}))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	x := &tap{Module: nvmerdma.New(nvmerdma.Config{Fabrics: fab, NIC: func() (*nic.NIC, error) {
		all, err := m.NICs()
		return all[0], err
	}})}
	mod, err := nvfs.New(m.Kernel(), nvfs.Config{RM: m.P2P(), Storage: []nvfs.Storage{x}})
	check(err)
	defer mod.Close()
	g, err := m.GPU.Open(0)
	check(err)
	a, err := g.Alloc(gpu.KindDevice, size, 0)
	check(err)
	c, err := client.Open(dev.Of(m))
	check(err)
	b, err := c.Register(client.Config{Addr: uint64(a), Size: size, Zero: func(addr, n uint64) error { return g.Fill(gpu.Addr(addr), 0, 1, n) }})
	check(err)
	path := filepath.Join(t.TempDir(), "f")
	data := bytes.Repeat([]byte{7}, size)
	check(os.WriteFile(path, data, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	check(err)
	nf, err := client.NewFile(path, int(f.Fd()), -1)
	check(err)

	check(g.Fill(a, 0xee, 1, size))
	own, mem := ordinary(t, 16, 0x11)
	x.change = func(r *nvfs.Request) {
		r.Pages = append(append([]nvfs.Page(nil), r.Pages[:8]...), own[:8]...)
	}
	if n, err := b.Read(nf, 0, 64<<10, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := b.Write(nf, 0, 64<<10, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %d, %v", n, err)
	}
	got := make([]byte, size)
	check(g.CopyOut(got, a))
	if !bytes.Equal(got, bytes.Repeat([]byte{0xee}, size)) || !bytes.Equal(mem, bytes.Repeat([]byte{0x11}, len(mem))) {
		t.Error("memory has changed")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
		t.Errorf("the file has changed, %v", err)
	}
	if s := x.Stats(); s.MapErrors != 2 || s.GPU+s.CPU+s.Retries != 0 {
		t.Errorf("%+v", s)
	}
	x.change = nil
	if n, err := b.Read(nf, 0, 64<<10, 0); n != 64<<10 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
	check(errors.Join(f.Close(), c.Close(), g.Free(a), g.Close()))
}
