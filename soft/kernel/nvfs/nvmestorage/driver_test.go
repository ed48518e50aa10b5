package nvmestorage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/internal/machinetest"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/pcie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const blockSize = nvfs.BlockSize

// A fixture is the driver, registered with nvidia-fs, and a file.
type fixture struct {
	*machinetest.Machine
	t *testing.T
	d *nvmestorage.Driver
	f *os.File
}

func newFixture(t *testing.T, flags int, slot func() (*pcie.Function, error)) *fixture {
	t.Helper()
	b := &fixture{t: t, Machine: machinetest.New(t, soft.Config{})}
	if slot == nil {
		slot = func() (*pcie.Function, error) { return b.Near, nil }
	}
	b.d = nvmestorage.New(slot, false)
	m, err := nvfs.New(b.OS, nvfs.Config{RM: b.RM, Storage: []nvfs.Storage{b.d}})
	b.Check(err)
	node, err := dev.Of(b.OS).Open("/dev/nvidia-fs0")
	b.Check(err)
	b.f, err = os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_RDWR|os.O_CREATE|flags, 0o600)
	b.Check(err)
	t.Cleanup(func() {
		b.Check(errors.Join(b.f.Close(), node.Close()))
		m.Close()
		b.Machine.Close()
	})
	return b
}

// pages is ordinary memory that belongs to no mgroup.
func (b *fixture) pages(n int, fill byte) ([]nvfs.Page, []byte) {
	b.t.Helper()
	mem, err := unix.Mmap(-1, 0, n*blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	b.Check(err)
	b.t.Cleanup(func() { _ = unix.Munmap(mem) })
	list := make([]nvfs.Page, n)
	for i := range list {
		list[i].Mem = mem[i*blockSize : (i+1)*blockSize]
	}
	for i := range mem {
		mem[i] = fill + byte(i/blockSize)
	}
	return list, mem
}

func (b *fixture) submit(write bool, off int64, pages []nvfs.Page) error {
	return b.d.Submit(&nvfs.Request{FD: int(b.f.Fd()), Write: write, Off: off, Pages: pages})
}

// Requests of ordinary memory go through host memory, where the fabric counts them:
// what bounces there shows its bytes twice, on the way in and on the way out.
func TestOrdinaryMemory(t *testing.T) {
	b := newFixture(t, unix.O_DIRECT, nil)
	const n = 40 // blocks, more than a page of the drive holds
	out, want := b.pages(n, 1)
	b.Check(b.submit(true, 2*blockSize, out))
	in, got := b.pages(n, 0xEE)
	b.Check(b.submit(false, 2*blockSize, in))
	if !bytes.Equal(got, want) {
		t.Error("the bytes come back otherwise")
	}
	st, host := b.d.Stats(), b.Fabric().HostTraffic()
	if st.In != n*blockSize || st.Out != n*blockSize || host.Read != st.In+st.Fetched+st.Listed || host.Written != st.Out+st.Posted {
		t.Errorf("the drive moved %+v, host memory has seen %+v", st, host)
	}
	e := pcie.Engine{Port: b.Port(0)} // the GPU, which fetches what the drive has left
	m, err := b.Fabric().AddHost(got)
	b.Check(err)
	defer m.Remove()
	if k, err := e.Read([]pcie.Range{{Bus: m.Base(), Len: len(got)}}, make([]byte, len(got))); k != len(got) || err != nil {
		t.Errorf("the GPU read %d bytes, %v", k, err)
	}
	if now := b.Fabric().HostTraffic(); now.Read != host.Read+n*blockSize || now.Written != host.Written {
		t.Errorf("host memory has seen %+v", now)
	}
}

// What lies behind the end of a file is zero in the block that it ends in.
func TestEndOfFile(t *testing.T) {
	b := newFixture(t, unix.O_DIRECT, nil)
	out, want := b.pages(4, 1)
	b.Check(b.submit(true, 0, out))
	b.Check(b.f.Truncate(2*blockSize + 100))
	in, got := b.pages(4, 0xEE)
	b.Check(b.submit(false, 0, in))
	clear(want[2*blockSize+100:])
	if !bytes.Equal(got, want) {
		t.Error("the bytes behind the end are not zero")
	}
}

// Requests have queue pairs of their own; more requests than pairs wait.
func TestManyRequests(t *testing.T) {
	b := newFixture(t, unix.O_DIRECT, nil)
	b.Check(b.f.Truncate(3 * nvmestorage.QueuePairs * 8 * blockSize))
	var wg sync.WaitGroup
	for i := range 3 * nvmestorage.QueuePairs {
		out, want := b.pages(8, byte(i))
		in, got := b.pages(8, 0xEE)
		wg.Go(func() {
			off := int64(i) * 8 * blockSize
			for range 5 {
				if err := errors.Join(b.submit(true, off, out), b.submit(false, off, in)); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("request %d got other bytes", i)
			}
		})
	}
	wg.Wait()
}

// The file's own errors come through.
func TestErrors(t *testing.T) {
	b := newFixture(t, unix.O_DIRECT, nil)
	in, _ := b.pages(1, 0)
	if err := b.d.Submit(&nvfs.Request{FD: -1, Pages: in}); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a file that is not open: %v", err)
	}
	for s, want := range map[abi.Status]error{
		abi.SUCCESS: nil, abi.UNRECOVERED_READ: syscall.ENODATA, abi.WRITE_FAULT | abi.STATUS_DNR: syscall.ENODATA,
		abi.DATA_TRANSFER_ERROR: syscall.EIO, abi.INVALID_FIELD | abi.STATUS_DNR: syscall.EIO,
	} {
		if got := nvmestorage.BlockError(uint16(s)); got != want {
			t.Errorf("%v is %v, want %v", s, got, want)
		}
	}
}

// Ranges that PRPs cannot express are refused.
func TestPRPs(t *testing.T) {
	const page, maximum = 64 << 10, 16 << 20
	for name, c := range map[string]struct {
		ranges []pcie.Range
		n      int
		ok     bool
	}{
		"one":              {[]pcie.Range{{Bus: 0x11000, Len: 4096}}, 4096, true},
		"two":              {[]pcie.Range{{Bus: 0x1f000, Len: 4096}, {Bus: 0x50000, Len: 8192}}, 12288, true},
		"three":            {[]pcie.Range{{Bus: 0x10000, Len: page}, {Bus: 0x50000, Len: page}, {Bus: 0x90000, Len: 4096}}, 2*page + 4096, true},
		"a gap":            {[]pcie.Range{{Bus: 0x10000, Len: 4096}, {Bus: 0x50000, Len: 4096}}, 0, false},
		"inside a page":    {[]pcie.Range{{Bus: 0x1f000, Len: 4096}, {Bus: 0x51000, Len: 4096}}, 0, false},
		"more than it may": {[]pcie.Range{{Bus: 0, Len: maximum}, {Bus: maximum, Len: 4096}}, 0, false},
	} {
		var cmd abi.Command
		n, ok := nvmestorage.PRPs(&cmd, c.ranges)
		if ok != c.ok || ok && (n != c.n || cmd.PRP1 != c.ranges[0].Bus) {
			t.Errorf("%s: %d bytes, %v", name, n, ok)
		}
	}
}

// A driver that nvidia-fs does not use has no drive; one that cannot be plugged in
// says so every time.
func TestNoDrive(t *testing.T) {
	noSlot := func() (*pcie.Function, error) { return nil, errors.New("no slot") }
	d := nvmestorage.New(noSlot, false)
	if err := d.Submit(&nvfs.Request{}); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("not registered: %v", err)
	}
	if d.Port() != nil || d.Stats().Commands != 0 {
		t.Error("there is a drive")
	}
	b := newFixture(t, 0, noSlot)
	for range 2 {
		if err := b.submit(false, 0, nil); err == nil || err.Error() != "no slot" {
			t.Errorf("no slot: %v", err)
		}
	}
}
