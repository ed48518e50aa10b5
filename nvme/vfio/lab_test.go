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
		case <-time.After(30 * time.Second):
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

// TestLabPeer has one drive write into another device's BAR and read from it:
// the controller memory buffer of a second drive, mapped into the process. No
// module and no host memory lies between.
func TestLabPeer(t *testing.T) {
	from, to := drive(t, "nv0"), drive(t, "cmb")
	target := open(t, to)
	defer target.Close()
	const cmbBAR = 2
	bar, err := target.MapRegion(cmbBAR)
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
	if _, err := tr.MapRegion(5); err == nil {
		t.Error("a BAR was mapped that is not there")
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tr.Interrupt(0); !errors.Is(err, os.ErrClosed) {
		t.Errorf("interrupts after close: %v", err)
	}
}
