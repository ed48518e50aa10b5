package nvme_test

import (
	"bytes"
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// A pinnedGPU is a GPU whose memory is pinned host memory, which a software
// controller reaches, whatever the GPU.
type pinnedGPU struct{ gpu.Device }

func (p pinnedGPU) Alloc(_ gpu.Kind, n uint64, f gpu.Flags) (gpu.Addr, error) {
	return p.Device.Alloc(gpu.KindHost, n, f)
}

func (p pinnedGPU) Pointer(a gpu.Addr) (gpu.Pointer, error) {
	at, err := p.Device.Pointer(a)
	at.Kind = gpu.KindDevice
	return at, err
}

func (p pinnedGPU) Register(host uintptr, n uint64, f gpu.Flags) error {
	return p.Device.Register(host, n, f&^gpu.RegisterIOMemory) // a software controller's registers are memory
}

func (p pinnedGPU) SetSyncMemops(gpu.Addr, bool) error { return nil }

func (p pinnedGPU) CopyIn(dst gpu.Addr, src []byte) error {
	copy(gpu.HostBytes(dst, uint64(len(src))), src)
	return nil
}

func (p pinnedGPU) CopyOut(dst []byte, src gpu.Addr) error {
	copy(dst, gpu.HostBytes(src, uint64(len(dst))))
	return nil
}

func (p pinnedGPU) Fill(dst gpu.Addr, value uint32, _ int, n uint64) error {
	b := gpu.HostBytes(dst, n)
	for i := range b {
		b[i] = byte(value)
	}
	return nil
}

// A pinnedTransport maps that memory, and has its registers mapped.
type pinnedTransport struct {
	*softnvme.Transport
	bar dev.Mapping
}

func (p pinnedTransport) Mapped() []byte { return dev.Bytes(p.bar) }

func (p pinnedTransport) MapGPU(s gpu.Span) ([]uint64, uint64, func() error, error) {
	return p.MapHost(gpu.HostBytes(s.Addr(), s.Len))
}

// TestGPUQueueOnAnyGPU has a kernel and a software controller talk through
// pinned memory, both of them running: on a real GPU that is what its CUDA half
// would do with a real drive, but for the way that the bytes take.
func TestGPUQueueOnAnyGPU(t *testing.T) {
	t.Run("software", func(t *testing.T) {
		if raceEnabled {
			t.Skip("needs a build without the race detector, which does not see the order that mapped registers make")
		}
		m := softgpu.H200()
		m.Memory, m.BAR1 = 16<<20, 16<<20
		drv, err := softgpu.New(softgpu.Config{Models: []softgpu.Model{m}})
		if err != nil {
			t.Fatal(err)
		}
		defer drv.Close()
		converse(t, drv)
	})
	t.Run("hardware", func(t *testing.T) {
		drv, err := cuda.Open()
		if err != nil {
			t.Skipf("needs a GPU: %v", err)
		}
		converse(t, drv)
	})
}

func converse(t *testing.T, drv gpu.Driver) {
	d, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	disk := fileDisk(t, diskSize)
	content := make([]byte, diskSize)
	for i := range content {
		content[i] = byte(i*13>>4) ^ byte(i>>16)
	}
	if _, err := disk.WriteV([][]byte{content}, 0); err != nil {
		t.Fatal(err)
	}
	b, err := soft.New(soft.Config{Drives: []soft.Drive{{Config: softnvme.Config{Namespaces: []softnvme.Namespace{{Medium: disk}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	bar, err := b.Drives()[0].MapBAR(int(b.Drives()[0].BARSize()), unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		t.Fatal(err)
	}
	defer bar.Unmap()
	c, err := nvme.Open(pinnedTransport{b.Transport(0), bar}, nvme.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dev, ctx := pinnedGPU{d}, context.Background()
	buf, err := c.AllocGPU(dev, diskSize)
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{1, 7, 64} {
		q, err := c.NewGPUQueue(dev, depth)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = dev.Fill(buf.Span().Addr(), 0xee, 1, diskSize)
			if err := q.Read(ctx, c.Namespaces()[0], buf, 0, 0, diskSize/512); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, diskSize)
			_ = dev.CopyOut(got, buf.Span().Addr())
			if !bytes.Equal(got, content) {
				t.Fatal("memory holds other bytes than the drive")
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}
