package cufile_test

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// newRead prepares reads of a warm file by one route, and the same by hand.
func newRead(b *testing.B, id route.ID, n int) (h *cufile.File, mem gpu.Span, dev gpu.Device, fd int) {
	b.Helper()
	b.Cleanup(cufile.SetCheckInterval(time.Millisecond)) // as outside of tests
	m, err := machine.FromSoft(softConfig(), "benchmark")
	if err != nil {
		b.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { drv.Close() })
	if dev, err = drv.Device(0); err != nil {
		b.Fatal(err)
	}
	file, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { file.Close() })
	if _, err := file.Write(make([]byte, n)); err != nil {
		b.Fatal(err)
	}
	if h, err = drv.Register(file); err != nil {
		b.Fatal(err)
	}
	if err := h.Require(0, id); err != nil {
		b.Fatal(err)
	}
	addr, err := dev.Alloc(gpu.KindDevice, uint64(n), 0)
	if err != nil {
		b.Fatal(err)
	}
	buf, err := drv.RegisterBuffer(addr, uint64(n))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(n))
	return h, buf.Span(), dev, int(file.Fd())
}

func benchRead(b *testing.B, id route.ID, n int) {
	h, mem, _, _ := newRead(b, id, n)
	ctx := context.Background()
	for b.Loop() {
		if _, err := h.ReadAt(ctx, mem, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func benchPlain(b *testing.B, n int) {
	_, mem, dev, fd := newRead(b, route.Host, n)
	buf := make([]byte, n)
	for b.Loop() {
		if _, err := unix.Pread(fd, buf, 0); err != nil {
			b.Fatal(err)
		}
		if err := dev.CopyIn(mem.Addr(), buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHost4K(b *testing.B)  { benchRead(b, route.Host, 4096) }
func BenchmarkRing4K(b *testing.B)  { benchRead(b, route.Ring, 4096) }
func BenchmarkPlain4K(b *testing.B) { benchPlain(b, 4096) }
func BenchmarkHost1M(b *testing.B)  { benchRead(b, route.Host, 1<<20) }
func BenchmarkRing1M(b *testing.B)  { benchRead(b, route.Ring, 1<<20) }
func BenchmarkPlain1M(b *testing.B) { benchPlain(b, 1<<20) }

func BenchmarkBar4K(b *testing.B) { benchRead(b, route.Bar, 4096) }

// BenchmarkPread4K is the floor of a read through BAR1.
func BenchmarkPread4K(b *testing.B) {
	_, _, _, fd := newRead(b, route.Host, 4096)
	buf := make([]byte, 4096)
	for b.Loop() {
		if _, err := unix.Pread(fd, buf, 0); err != nil {
			b.Fatal(err)
		}
	}
}
