package vfio

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/nvmetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// places are where the guest's drives were found. A kernel that gets a drive
// back tells its serial number only after a while.
var places = map[string]string{}

func place(t *testing.T, id string) (pci string) {
	t.Helper()
	inside.Require(t)
	if places[id] == "" {
		dir, err := inside.PCI(id)
		if err != nil {
			t.Fatal(err)
		}
		places[id] = filepath.Base(dir)
	}
	return places[id]
}

// drive takes one of the guest's drives from the kernel, and gives it back.
func drive(t *testing.T, id string) (pci string) {
	t.Helper()
	pci = place(t, id)
	if err := Bind(pci); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unbind(pci); err != nil {
			t.Error(err)
		}
	})
	return pci
}

func open(t testing.TB, pci string) *Transport {
	t.Helper()
	tr, err := Open(pci, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// TestLabSuite runs the driver's suite on QEMU's drive, behind an emulated
// IOMMU.
func TestLabSuite(t *testing.T) {
	pci := drive(t, "nv0")
	bad, err := strconv.ParseUint(os.Getenv("CULVERT_WANT_BAD_BLOCK"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	nvmetest.Run(t, nvmetest.Drive{
		Open:    func(t testing.TB) nvme.Transport { return open(t, pci) },
		BadRead: bad,
		// The emulated IOMMU stops such requests, and the emulated drive (QEMU
		// 7.2) takes that for success.
		NoDataError: true,
	})
}

// TestLabInterrupts waits for the interrupt of a queue that nobody polls.
func TestLabInterrupts(t *testing.T) {
	tr := open(t, drive(t, "nv0"))
	for _, v := range []int{-1, 1 << 20} {
		if _, err := tr.Interrupt(v); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("vector %d: %v", v, err)
		}
	}
	c, err := nvme.Open(tr, nvme.Config{Queues: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf, err := c.AllocHost(4096)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQueue(4) // the second, whose vector is 2
	if err != nil {
		t.Fatal(err)
	}
	irq, err := tr.Interrupt(2)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r := nvme.Request{Op: nvme.OpRead, NS: c.Namespaces()[0], Blocks: 1, Buf: buf}
		if _, err := q.Submit(&r); err != nil {
			t.Fatal(err)
		}
		select {
		case <-irq:
		case <-time.After(2 * time.Minute):
			t.Fatal("no interrupt came")
		}
		if n := q.Poll(make([]*nvme.Request, 1)); n != 1 || r.Err() != nil {
			t.Fatalf("after the interrupt %d commands are done, %v", n, r.Err())
		}
	}
}

// TestLabFunctionReset resets the drive under the driver.
func TestLabFunctionReset(t *testing.T) {
	tr := open(t, drive(t, "nv0"))
	c, err := nvme.Open(tr, nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf, err := c.AllocHost(4096)
	if err != nil {
		t.Fatal(err)
	}
	read := func() error { return c.Namespaces()[0].Read(context.Background(), buf, 0, 0, 1) }
	if err := read(); err != nil {
		t.Fatal(err)
	}
	if err := tr.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Error(err)
	}
}

// cmbBAR is where QEMU's drive has its memory.
const cmbBAR = 2

// TestLabPeer has one drive write into another device's BAR and read from it:
// the controller memory buffer of a second drive, mapped into the process. No
// module and no host memory lies between.
func TestLabPeer(t *testing.T) {
	from, to := drive(t, "nv0"), drive(t, "cmb")
	target := open(t, to)
	defer target.Close()
	bar, err := target.mapRegion(cmbBAR)
	if err != nil {
		t.Fatal(err)
	}
	defer bar.Unmap()
	mem := dev.Bytes(bar)[:1<<20]
	c, err := nvme.Open(open(t, from), nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ns, ctx := c.Namespaces()[0], context.Background()
	host, err := c.AllocHost(len(mem))
	if err != nil {
		t.Fatal(err)
	}
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i*7>>4) ^ byte(i>>12)
	}
	blocks := uint64(len(mem) / ns.BlockSize())
	if err := ns.Write(ctx, host, 0, 0, blocks); err != nil {
		t.Fatal(err)
	}
	peer, err := c.MapHost(mem)
	if err != nil {
		t.Fatalf("the kernel does not take another device's BAR for DMA: %v", err)
	}
	if err := ns.Read(ctx, peer, 0, 0, blocks); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(mem))
	loadWords(got, mem)
	if !bytes.Equal(got, host.Bytes()) {
		t.Error("the BAR holds other bytes than the drive")
	}
	// Back to another place, from the BAR.
	if err := ns.Write(ctx, peer, 0, 2*blocks, blocks); err != nil {
		t.Fatal(err)
	}
	clear(host.Bytes())
	if err := ns.Read(ctx, host, 0, 2*blocks, blocks); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, host.Bytes()) {
		t.Error("the drive got other bytes from the BAR")
	}
	if err := peer.Close(); err != nil {
		t.Error(err)
	}
}

// A barGPU is a GPU that has nothing but memory: a mapping of another device's
// BAR plays its BAR1. Allocations are never given back.
type barGPU struct {
	gpu.Device
	bar  dev.Mapping
	next uint64
}

// barBase is where the addresses of a barGPU begin.
const barBase = 1 << 40

func (g *barGPU) Info() gpu.Info                     { return gpu.Info{Name: "a drive's memory"} }
func (g *barGPU) SetSyncMemops(gpu.Addr, bool) error { return nil }
func (g *barGPU) FlushWrites(gpu.Scope) error        { return nil }
func (g *barGPU) Free(gpu.Addr) error                { return nil }
func (g *barGPU) Pointer(gpu.Addr) (gpu.Pointer, error) {
	return gpu.Pointer{Kind: gpu.KindDevice, Base: barBase, Size: uint64(g.bar.Len())}, nil
}

func (g *barGPU) Alloc(_ gpu.Kind, n uint64, _ gpu.Flags) (gpu.Addr, error) {
	a := g.next
	g.next += n
	return gpu.Addr(barBase + a), nil
}

func (g *barGPU) CopyIn(dst gpu.Addr, src []byte) error {
	storeWords(dev.Bytes(g.bar)[dst-barBase:], src)
	return nil
}

func (g *barGPU) CopyOut(dst []byte, src gpu.Addr) error {
	loadWords(dst, dev.Bytes(g.bar)[src-barBase:][:len(dst)])
	return nil
}

// view is what a Config takes.
func (g *barGPU) view(s gpu.Span) ([]byte, func() error, error) {
	return dev.Bytes(g.bar)[s.Addr()-barBase:][:s.Len:s.Len], func() error { return nil }, nil
}

// newBarGPU makes a GPU of a drive with memory.
func newBarGPU(t *testing.T) (*barGPU, *Transport) {
	t.Helper()
	owner := open(t, drive(t, "cmb"))
	t.Cleanup(func() { owner.Close() })
	bar, err := owner.mapRegion(cmbBAR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bar.Unmap() })
	return &barGPU{bar: bar}, owner
}

// TestLabGPU takes the way of a GPU's memory: a view of it, mapped for DMA.
func TestLabGPU(t *testing.T) {
	g, _ := newBarGPU(t)
	tr, err := Open(drive(t, "nv0"), Config{View: g.view})
	if err != nil {
		t.Fatal(err)
	}
	c, err := nvme.Open(tr, nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 256 << 10
	host, err := c.AllocHost(n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range host.Bytes() {
		host.Bytes()[i] = byte(i*11>>3) ^ byte(i>>13)
	}
	ns, ctx := c.Namespaces()[0], context.Background()
	blocks := uint64(n / ns.BlockSize())
	if err := ns.Write(ctx, host, 0, 0, blocks); err != nil {
		t.Fatal(err)
	}
	there, err := c.AllocGPU(g, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Read(ctx, there, 0, 0, blocks); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	if err := g.CopyOut(got, there.Span().Addr()); err != nil || !bytes.Equal(got, host.Bytes()) {
		t.Errorf("the GPU's memory holds other bytes than the drive, %v", err)
	}
	if err := there.Close(); err != nil {
		t.Error(err)
	}
}

// astray is a transport whose maps of GPU memory lead to addresses that the
// IOMMU does not know.
type astray struct{ *Transport }

func (a astray) MapGPU(s gpu.Span) ([]uint64, uint64, func() error, error) {
	_, size, unmap, err := a.Transport.MapGPU(s)
	return []uint64{1 << 38}, size, unmap, err
}

// TestLabUnreachable has the IOMMU stop the drive's writes, of which this drive
// hears nothing: the driver does, and declines.
func TestLabUnreachable(t *testing.T) {
	g, _ := newBarGPU(t)
	tr, err := Open(drive(t, "nv0"), Config{View: g.view})
	if err != nil {
		t.Fatal(err)
	}
	c, err := nvme.Open(astray{tr}, nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.AllocGPU(g, 64<<10); !errors.Is(err, nvme.ErrUnreachable) {
		t.Errorf("%v, want %v", err, nvme.ErrUnreachable)
	} else {
		t.Log(err)
	}
}

// TestLabKernelRefuses maps what the kernel does not take for DMA: a BAR that
// does not answer, and one that may not be written.
func TestLabKernelRefuses(t *testing.T) {
	g, owner := newBarGPU(t)
	tr, err := Open(drive(t, "nv0"), Config{View: g.view})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	span := gpu.Span{Base: barBase, Len: 64 << 10}
	refused := func(what string) {
		t.Helper()
		before := len(tr.iovas.taken)
		_, _, unmap, err := tr.MapGPU(span)
		if err == nil {
			t.Errorf("%s was mapped", what)
			unmap()
			return
		}
		t.Log(err)
		if !strings.Contains(err.Error(), "does not accept this memory for DMA") {
			t.Errorf("%s: the reason is missing: %v", what, err)
		}
		if n := len(tr.iovas.taken); n != before {
			t.Errorf("%s: %d addresses leaked", what, n-before)
		}
	}
	if err := owner.command(func(c uint16) uint16 { return c &^ pciMemory }); err != nil {
		t.Fatal(err)
	}
	refused("a BAR that does not answer")
	if err := owner.enable(); err != nil {
		t.Fatal(err)
	}
	r, err := owner.region(cmbBAR)
	if err != nil {
		t.Fatal(err)
	}
	whole := g.bar
	if g.bar, err = dev.MapFile(owner.device, int64(r.Offset), int(r.Size), unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	refused("a BAR that may not be written")
	if err := g.bar.Unmap(); err != nil {
		t.Error(err)
	}
	// And as it should be.
	g.bar = whole
	_, _, unmap, err := tr.MapGPU(span)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmap(); err != nil {
		t.Error(err)
	}
}

// TestLabRefusals looks at what is said when something is not as it must be.
func TestLabRefusals(t *testing.T) {
	if _, err := Open(place(t, "nv0"), Config{}); err == nil || !strings.Contains(err.Error(), "bound to nvme") {
		t.Errorf("a drive that the kernel uses: %v", err)
	}
	pci := drive(t, "nv0")
	tr := open(t, pci)
	if _, err := Open(pci, Config{}); !errors.Is(err, os.ErrPermission) && (err == nil || !strings.Contains(err.Error(), "busy")) {
		t.Errorf("a drive that is open already: %v", err)
	}
	mem := make([]byte, 64<<10)
	if _, _, _, err := tr.MapHost(mem[:100]); err == nil {
		t.Error("100 bytes were mapped")
	}
	if _, err := tr.mapRegion(5); err == nil {
		t.Error("a BAR was mapped that is not there")
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tr.Interrupt(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("interrupts after close: %v", err)
	}
}
