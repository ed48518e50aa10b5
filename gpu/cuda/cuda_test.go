package cuda_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/gpu/kernels/kerneltest"
)

// hardware is the driver of a real GPU. The test binary runs on a machine
// without Go: CGO_ENABLED=0 go test -c ./gpu/cuda.
func hardware(t testing.TB) *cuda.Driver {
	t.Helper()
	d, err := cuda.Open()
	if err != nil {
		t.Skipf("needs an NVIDIA GPU with its driver: %v", err)
	}
	return d
}

func openHardware(t testing.TB) gpu.Device {
	t.Helper()
	d, err := hardware(t).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// bench is a device with a stream and the kernels loaded.
type bench struct {
	testing.TB
	gpu.Device
	stream gpu.Stream
	module gpu.Module
}

func newBench(t testing.TB) *bench {
	d := openHardware(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load(kernels.PTX)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, d, s, m}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) alloc(n uint64) gpu.Addr {
	b.Helper()
	a, err := b.Alloc(gpu.KindDevice, n, 0)
	b.must(err)
	return a
}

func (b *bench) launch(kernel string, grid, block gpu.Dim, args ...uint64) {
	b.Helper()
	f, err := b.module.Func(kernel)
	b.must(err)
	list := make([]any, len(args))
	for i, a := range args {
		list[i] = a
	}
	b.must(b.stream.Launch(f, grid, block, list...))
	b.must(b.stream.Synchronize())
}

// The GPU does to memory what the Go half does.
func TestKernelsAgreeWithGo(t *testing.T) {
	b := newBench(t)
	mem := b.alloc(kerneltest.Size)
	got := make([]byte, kerneltest.Size)
	for _, name := range kernels.Names() {
		for seed := range uint64(100) {
			c := kerneltest.New(name, mem, seed)
			b.must(b.CopyIn(mem, c.Memory))
			b.launch(name, c.Grid, c.Block, c.Args...)
			b.must(b.CopyOut(got, mem))
			if diff := c.Diff(got); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
		}
	}
}

// Enough data that every multiprocessor takes part.
func TestKernelsOnLargeData(t *testing.T) {
	b := newBench(t)
	const n = 64<<20 + 12345
	data := make([]byte, n)
	for i := range data[:n/8] {
		binary.LittleEndian.PutUint64(data[i*8:], rand.Uint64())
	}
	a, c, result := b.alloc(n), b.alloc(n), b.alloc(8)
	b.must(b.CopyIn(a, data))
	grid, block := gpu.Dim{X: 264}, gpu.Dim{X: 256}
	run := func(kernel string, args ...uint64) uint64 {
		t.Helper()
		b.must(b.Fill(result, 0, 1, 8))
		b.launch(kernel, grid, block, append(args, uint64(result))...)
		var word [8]byte
		b.must(b.CopyOut(word[:], result))
		return binary.LittleEndian.Uint64(word[:])
	}

	if got, want := run("culvert_crc32c", uint64(a), n), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)); uint32(got) != want {
		t.Errorf("CRC-32C %08x, want %08x", got, want)
	}
	var sum uint64
	for _, x := range data {
		sum += uint64(x)
	}
	if got := run("culvert_sum", uint64(a), n); got != sum {
		t.Errorf("sum %d, want %d", got, sum)
	}
	b.must(b.Copy(c, a, n))
	if got := run("culvert_compare", uint64(a), uint64(c), n); got != 0 {
		t.Errorf("%d bytes differ after a copy", got)
	}
	for _, off := range []gpu.Addr{0, n / 2, n - 1} {
		b.must(b.CopyIn(c+off, []byte{^data[off]}))
	}
	if got := run("culvert_compare", uint64(a), uint64(c), n); got != 3 {
		t.Errorf("%d bytes differ, want 3", got)
	}
}

// Sum sees what CopyIn wrote, on a stream that does not wait for the default
// stream: only CopyIn's own waiting makes that right.
func TestCopyInHasArrived(t *testing.T) {
	b := newBench(t)
	const n = 32 << 10 // of pageable memory, which the driver stages
	mem, result := b.alloc(n), b.alloc(8)
	data := make([]byte, n)
	for round := range 2000 {
		for i := range data {
			data[i] = byte(round)
		}
		b.must(b.CopyIn(mem, data))
		b.must(b.stream.Fill(result, 0, 4, 2))
		b.launch("culvert_sum", gpu.Dim{X: 32}, gpu.Dim{X: 256}, uint64(mem), n, uint64(result))
		var word [8]byte
		b.must(b.CopyOut(word[:], result))
		if got, want := binary.LittleEndian.Uint64(word[:]), uint64(byte(round))*n; got != want {
			t.Fatalf("round %d: sum %d, want %d", round, got, want)
		}
	}
}

func TestIPCHandle(t *testing.T) {
	b := newBench(t)
	one, err := b.Device.(*cuda.Device).IPCHandle(b.alloc(4 << 20))
	b.must(err)
	two, err := b.Device.(*cuda.Device).IPCHandle(b.alloc(4 << 20))
	b.must(err)
	if one == two || one == [64]byte{} {
		t.Errorf("handles of two allocations: %x and %x", one, two)
	}
	v, err := b.Alloc(gpu.KindVirtual, 4<<20, 0)
	b.must(err)
	if _, err := b.Device.(*cuda.Device).IPCHandle(v); !errors.Is(err, gpu.ErrInvalidValue) {
		t.Errorf("handle of virtual memory: %v", err)
	}
}
