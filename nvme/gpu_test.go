package nvme_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
	"github.com/culvert-io/culvert/soft/pcie/syncpoint"
)

const diskSize = 4 << 20

// A gpuFixture is a drive beside a GPU.
type gpuFixture struct {
	testing.TB
	ctx     context.Context
	m       *soft.Machine
	drive   *softnvme.Controller
	dev     gpu.Device
	c       *nvme.Controller
	ns      *nvme.Namespace
	content []byte // of the drive
	points  syncpoint.Points
}

type gpuSetup struct {
	iommu   pcie.IOMMU
	scatter bool
	far     bool // the drive is not below the GPU's switch
	fail    func(string) bool
}

func newGPUFixture(t testing.TB, s gpuSetup) *gpuFixture {
	t.Helper()
	r := &gpuFixture{TB: t, ctx: context.Background()}
	disk := fileDisk(t, diskSize)
	r.content = make([]byte, diskSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(r.content)
	_, err := disk.WriteV([][]byte{r.content}, 0)
	r.check(err)
	drive := soft.Drive{Config: softnvme.Config{Namespaces: []softnvme.Namespace{{Medium: disk}}, Points: &r.points}}
	if s.far {
		drive.GPU = -1
	}
	r.m = newMachine(t, soft.Config{Scatter: s.scatter, Seed: 5, IOMMU: s.iommu, Isolated: s.far, Fail: s.fail}, drive)
	r.drive = r.m.Drives()[0]
	r.dev, err = r.m.GPU.Open(0)
	r.check(err)
	t.Cleanup(func() { r.dev.Close() })
	r.c, err = nvme.Open(r.m.Transport(0), nvme.Config{})
	r.check(err)
	t.Cleanup(func() {
		if err := r.c.Close(); err != nil && !errors.Is(err, nvme.ErrClosed) {
			t.Error(err)
		}
		if n := r.m.P2P().Live(); n != 0 {
			t.Errorf("%d pins are left", n)
		}
	})
	r.ns = r.c.Namespaces()[0]
	return r
}

func (r *gpuFixture) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *gpuFixture) alloc(n uint64) *nvme.Buffer {
	r.Helper()
	b, err := r.c.AllocGPU(r.dev, n)
	r.check(err)
	return b
}

func (r *gpuFixture) out(s gpu.Span) []byte {
	r.Helper()
	p := make([]byte, s.Len)
	r.check(r.dev.CopyOut(p, s.Addr()))
	return p
}

// An account is what moved.
type account struct {
	host  pcie.HostTraffic
	drive softnvme.Stats
	gpu   pcie.Traffic
}

func (r *gpuFixture) account() account {
	return account{r.m.Fabric().HostTraffic(), r.drive.Stats(), r.m.Port(0).Traffic()}
}

// dataBytes is what of the drive's data went through host memory since an
// earlier account: what host memory saw, less queues and lists.
func (r *gpuFixture) dataBytes(before account) (read, written uint64) {
	now := r.account()
	control := now.drive.Fetched - before.drive.Fetched + now.drive.Listed - before.drive.Listed
	return now.host.Read - before.host.Read - control,
		now.host.Written - before.host.Written - (now.drive.Posted - before.drive.Posted)
}

// TestGPUTarget moves the whole drive to GPU memory and back. No byte of it
// comes by host memory.
func TestGPUTarget(t *testing.T) {
	for name, s := range map[string]gpuSetup{
		"plain": {}, "scattered": {scatter: true}, "translating": {iommu: pcie.Translating, scatter: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newGPUFixture(t, s)
			buf := r.alloc(diskSize)
			before := r.account()
			r.check(r.ns.Read(r.ctx, buf, 0, 0, diskSize/512))
			if !bytes.Equal(r.out(buf.Span()), r.content) {
				t.Error("GPU memory holds other bytes than the drive")
			}
			in := r.account()
			if read, written := r.dataBytes(before); read != 0 || written != 0 {
				t.Errorf("%d bytes of data were read from host memory and %d written to it", read, written)
			}
			if got := in.gpu.Down - before.gpu.Down; got != diskSize {
				t.Errorf("%d bytes went down to the GPU, want %d", got, diskSize)
			}
			for i := range r.content {
				r.content[i] ^= 0x5a
			}
			r.check(r.dev.CopyIn(buf.Span().Addr(), r.content))
			r.check(r.ns.Write(r.ctx, buf, 0, 0, diskSize/512))
			if read, written := r.dataBytes(before); read != 0 || written != 0 {
				t.Errorf("%d bytes of data were read from host memory and %d written to it", read, written)
			}
			r.check(r.dev.Fill(buf.Span().Addr(), 0, 1, diskSize))
			// Into another place, in pieces that begin anywhere.
			r.check(r.ns.Read(r.ctx, buf, 4, 1, 1000))
			got := r.out(buf.Span())
			want := make([]byte, diskSize)
			copy(want[4:], r.content[512:][:1000*512])
			if !bytes.Equal(got, want) {
				t.Error("after the way back GPU memory holds other bytes, or more of them")
			}
			r.check(buf.Close())
		})
	}
}

// TestBounceIsCounted takes the detour on purpose: the drive writes to host
// memory, and the GPU reads from there.
func TestBounceIsCounted(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	host, err := r.c.AllocHost(diskSize)
	r.check(err)
	base, err := r.dev.Alloc(gpu.KindDevice, diskSize, 0)
	r.check(err)
	defer r.dev.Free(base)
	before := r.account()
	r.check(r.ns.Read(r.ctx, host, 0, 0, diskSize/512))
	// The GPU's own engine fetches the bytes.
	pages, size, unmap, err := r.c2().MapHost(host.Bytes())
	r.check(err)
	var sg []pcie.Range
	for _, p := range pages {
		sg = append(sg, pcie.Range{Bus: p, Len: int(size)})
	}
	got := make([]byte, diskSize)
	e := pcie.Engine{Port: r.m.Port(0)}
	_, err = e.Read(sg, got)
	r.check(err)
	r.check(r.dev.CopyIn(base, got))
	r.check(unmap())
	read, written := r.dataBytes(before)
	if read+written != 2*diskSize {
		t.Errorf("host memory saw %d + %d bytes of data, want %d twice", read, written, diskSize)
	}
	if !bytes.Equal(r.out(gpu.Span{Base: base, Len: diskSize}), r.content) {
		t.Error("GPU memory holds other bytes than the drive")
	}
}

// c2 is a way to map memory beside the driver.
func (r *gpuFixture) c2() *softnvme.Transport { return r.drive.Transport(nil, nil) }

func TestMapGPURefuses(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	alloc := func(k gpu.Kind, n uint64) gpu.Addr {
		a, err := r.dev.Alloc(k, n, 0)
		r.check(err)
		t.Cleanup(func() { r.check(r.dev.Free(a)) })
		return a
	}
	const n = 2 << 20
	device, managed, host := alloc(gpu.KindDevice, n), alloc(gpu.KindManaged, n), alloc(gpu.KindHost, n)
	aligned := func(a gpu.Addr) uint64 { return -uint64(a) & (64<<10 - 1) }
	for _, c := range []struct {
		name string
		span gpu.Span
		text string
	}{
		{"managed", gpu.Span{Base: managed, Off: aligned(managed), Len: 64 << 10}, "managed memory cannot be pinned"},
		{"host", gpu.Span{Base: host, Off: aligned(host), Len: 64 << 10}, "is not on the GPU"},
		{"unknown", gpu.Span{Base: 64 << 10, Len: 64 << 10}, "is not on the GPU"},
		{"odd address", gpu.Span{Base: device, Off: 4096, Len: 64 << 10}, "multiples of 65536"},
		{"odd length", gpu.Span{Base: device, Len: 4096}, "multiples of 65536"},
		{"empty", gpu.Span{Base: device}, "multiples of 65536"},
		{"too long", gpu.Span{Base: device, Len: n + 64<<10}, "exceeds its allocation at"},
	} {
		b, err := r.c.MapGPU(r.dev, c.span)
		if err == nil {
			t.Errorf("%s: mapped", c.name)
			r.check(b.Close())
			continue
		}
		if !errors.Is(err, gpu.ErrInvalidValue) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %q", c.name, err, c.text)
		}
	}
	b, err := r.c.MapGPU(r.dev, gpu.Span{Base: device, Len: n})
	r.check(err)
	if p, err := r.dev.Pointer(device); err != nil || !p.SyncMemops {
		t.Errorf("synchronous operations on the memory may be late: %+v, %v", p, err)
	}
	if b.Bytes() != nil || b.Len() != n {
		t.Errorf("%d bytes, of which the CPU sees %d", b.Len(), len(b.Bytes()))
	}
	r.check(b.Close())
	if n := r.m.P2P().Live(); n != 0 {
		t.Errorf("%d pins are left", n)
	}
	if _, err := r.c.AllocGPU(r.dev, 0); err == nil {
		t.Error("no memory was allocated")
	}
	if _, err := r.c.AllocGPU(r.dev, 1<<40); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("a terabyte: %v", err)
	}
}

// TestMapGPUReleasesOnEveryPath has each allocation behind a map fail in turn.
func TestMapGPUReleasesOnEveryPath(t *testing.T) {
	failing := ""
	r := newGPUFixture(t, gpuSetup{fail: func(site string) bool { return site == failing }})
	free, _, err := r.dev.MemInfo()
	r.check(err)
	for _, failing = range []string{"mem_info", "page", "callback", "dma_mapping", "dma_addresses"} {
		if _, err := r.c.AllocGPU(r.dev, 1<<20); err == nil {
			t.Errorf("%s failed, and memory was mapped", failing)
		}
		if now, _, _ := r.dev.MemInfo(); now != free {
			t.Errorf("%s: %d bytes of GPU memory leaked", failing, free-now)
		}
		if n := r.m.P2P().Live(); n != 0 {
			t.Errorf("%s: %d pins leaked", failing, n)
		}
	}
	failing = ""
	r.check(r.alloc(1 << 20).Close())
}

// TestFreedWhileMapped frees GPU memory under the driver's hands.
func TestFreedWhileMapped(t *testing.T) {
	for _, mode := range []pcie.IOMMU{pcie.Off, pcie.Translating} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newGPUFixture(t, gpuSetup{iommu: mode})
			const n = 4 << 20
			base, err := r.dev.Alloc(gpu.KindDevice, n, 0)
			r.check(err)
			b, err := r.c.MapGPU(r.dev, gpu.Span{Base: base, Len: n})
			r.check(err)
			r.check(r.ns.Read(r.ctx, b, 0, 0, 128))
			r.check(r.dev.Free(base))
			// Somebody else may have the memory now.
			again, err := r.dev.Alloc(gpu.KindDevice, n, 0)
			r.check(err)
			r.check(r.dev.Fill(again, 0x77, 1, n))
			for range 3 {
				if err := r.ns.Read(r.ctx, b, 0, 0, 128); !errors.Is(err, nvme.StatusDataTransferError) {
					t.Errorf("read: %v, want %v", err, nvme.StatusDataTransferError)
				}
				if err := r.ns.Write(r.ctx, b, 0, 0, 1); !errors.Is(err, nvme.StatusDataTransferError) {
					t.Errorf("write: %v, want %v", err, nvme.StatusDataTransferError)
				}
			}
			if !bytes.Equal(r.out(gpu.Span{Base: again, Len: n}), bytes.Repeat([]byte{0x77}, n)) {
				t.Error("the drive wrote to memory that was freed")
			}
			if err := b.Close(); !errors.Is(err, nvme.ErrRevoked) {
				t.Errorf("close: %v, want %v", err, nvme.ErrRevoked)
			}
			if n := r.m.P2P().Live(); n != 0 {
				t.Errorf("%d pins are left", n)
			}
			r.check(r.dev.Free(again))
			// The rest of the driver is well.
			other := r.alloc(64 << 10)
			r.check(r.ns.Read(r.ctx, other, 0, 0, 128))
			r.check(other.Close())
		})
	}
}

// TestFreeWaitsForDMA frees memory while the drive has it in its hands.
func TestFreeWaitsForDMA(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	base, err := r.dev.Alloc(gpu.KindDevice, 2<<20, 0)
	r.check(err)
	b, err := r.c.MapGPU(r.dev, gpu.Span{Base: base, Len: 2 << 20})
	r.check(err)
	gate := r.points.Stop("nvme.acquired")
	read := make(chan error)
	go func() { read <- r.ns.Read(r.ctx, b, 0, 0, 128) }()
	<-gate.Arrived()
	freed := make(chan error)
	go func() { freed <- r.dev.Free(base) }()
	select {
	case err := <-freed:
		t.Errorf("memory was freed (%v) while the drive writes to it", err)
		gate.Open()
	case <-time.After(soon):
		gate.Open()
		r.check(<-freed)
	}
	if err := <-read; err != nil && !errors.Is(err, nvme.StatusDataTransferError) {
		t.Error(err)
	}
	if err := r.ns.Read(r.ctx, b, 0, 0, 128); !errors.Is(err, nvme.StatusDataTransferError) {
		t.Errorf("after the free: %v", err)
	}
	if err := b.Close(); !errors.Is(err, nvme.ErrRevoked) {
		t.Error(err)
	}
}

// TestNoWayToTheGPU has the drive below another root port: the memory is not
// mapped, with the reason, and nothing of the attempt is left.
func TestNoWayToTheGPU(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{far: true})
	free, _, err := r.dev.MemInfo()
	r.check(err)
	for range 2 {
		if _, err := r.c.AllocGPU(r.dev, 64<<10); !errors.Is(err, nvme.ErrUnreachable) || !errors.Is(err, nvme.StatusDataTransferError) {
			t.Errorf("%v, want %v for %v", err, nvme.ErrUnreachable, nvme.StatusDataTransferError)
		}
	}
	if n := r.drive.Function().Faults(); n == 0 {
		t.Error("the fabric counted no fault")
	}
	if now, _, _ := r.dev.MemInfo(); now != free {
		t.Errorf("%d bytes of GPU memory leaked", free-now)
	}
	host, err := r.c.AllocHost(4096)
	r.check(err)
	r.check(r.ns.Read(r.ctx, host, 0, 0, 8))
}

// astray is a transport whose maps of GPU memory lead elsewhere: to host memory
// of the test.
type astray struct {
	nvme.Transport
	mem []byte
}

func (a astray) MapGPU(s gpu.Span) ([]uint64, uint64, func() error, error) {
	return a.MapHost(a.mem[:s.Len])
}

// TestWritesThatVanish has the drive report success for writes that do not
// arrive.
func TestWritesThatVanish(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	mem, err := r.c.AllocHost(4 << 20)
	r.check(err)
	c, err := nvme.Open(astray{r.c2(), mem.Bytes()}, nvme.Config{})
	r.check(err)
	if _, err := c.AllocGPU(r.dev, 1<<20); !errors.Is(err, nvme.ErrUnreachable) || !strings.Contains(err.Error(), "reported success") {
		t.Errorf("%v, want %v", err, nvme.ErrUnreachable)
	}
	r.check(c.Close())
	r.check(r.c.Reset())
	// The GPU is within reach of the other driver, which asks once; bad blocks
	// do not keep it from that.
	for _, lba := range []uint64{0, diskSize / 1024} {
		defer r.drive.FailBlock(1, lba, softnvme.Read)()
	}
	r.check(r.alloc(1 << 20).Close())
	before := r.drive.Stats().Commands
	r.check(r.alloc(1 << 20).Close())
	if n := r.drive.Stats().Commands - before; n != 0 {
		t.Errorf("%d commands for a GPU that is known to be within reach", n)
	}
}

// TestCloseFreesWhatIsLeft closes the controller before its buffers.
func TestCloseFreesWhatIsLeft(t *testing.T) {
	r := newGPUFixture(t, gpuSetup{})
	free, _, err := r.dev.MemInfo()
	r.check(err)
	b := r.alloc(1 << 20)
	r.check(r.ns.Read(r.ctx, b, 0, 0, 8))
	c, err := nvme.Open(r.c2(), nvme.Config{}) // takes the controller from the first driver
	r.check(err)
	if _, err := c.AllocGPU(r.dev, 4096); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("GPU memory without nvidia_p2p: %v", err)
	}
	r.check(c.Close())
	r.check(r.c.Reset())
	r.check(r.ns.Read(r.ctx, b, 0, 0, 8))
	r.check(r.c.Close())
	if now, _, _ := r.dev.MemInfo(); now != free {
		t.Errorf("%d bytes of GPU memory were not freed", free-now)
	}
}
