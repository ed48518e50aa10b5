package ladder

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// An experiment: reads of 1 MiB from the page cache, shared by the copy engine and BAR1.
//
// Today a read goes one way. Through BAR1, the caller is a processor that stores, and the
// copy engine idles; by the ring, it waits for its copy, and pushes lines out of its cache
// so that the copy is shorter. A shared read stages its first part, launches the copy, and
// stores the rest through BAR1 meanwhile: the wait is hidden behind the stores, lines need
// not be pushed out, and no caller is one of two kinds.
//
// What is measured decides: the best share must beat the present choice for 8 callers, and
// not lose for 16. On a machine with a GPU:
//
//	go test -c ./internal/ladder && ./ladder.test -test.run TestHardwareSharedReads -test.v -shared.dir /a/disk
var sharedFlags = struct {
	dir  *string
	size *int64
	time *time.Duration
}{
	flag.String("shared.dir", "", "directory for the file of TestHardwareSharedReads (default: a temporary one)"),
	flag.Int64("shared.size", 2<<30, "bytes of that file"),
	flag.Duration("shared.time", 400*time.Millisecond, "duration of each of its measurements"),
}

const sharedBlock = 1 << 20

// sharedParts are the bytes of a block that are staged; the rest goes through BAR1.
var sharedParts = []uint64{0, 256 << 10, 384 << 10, 512 << 10, 640 << 10, 768 << 10, sharedBlock}

// A sharedReader is one caller: its pinned memory, its stream, and its block of GPU memory.
type sharedReader struct {
	stream gpu.Stream
	slot   gpu.Addr
	mem    gpu.Span
	bar    []byte
	fd     int
}

func newSharedReader(t *testing.T, w *fixture, i int) *sharedReader {
	t.Helper()
	slot, err := w.device.Alloc(gpu.KindHost, sharedBlock, gpu.HostPortable)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.device.Free(slot) })
	stream, err := w.device.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	bar := w.ladder.Plan(w.src).keep(route.Bar).routes[0].Mapping(w.mem.Base)
	if bar == nil {
		t.Skip("needs GPU memory that can be mapped")
	}
	at := uint64(i) * sharedBlock
	return &sharedReader{stream, slot, w.mem.Slice(at, sharedBlock), bar[at : at+sharedBlock], w.src.File().Buffered()}
}

// read reads a block, of which the first bytes are staged.
func (r *sharedReader) read(off int64, staged uint64) error {
	if staged > 0 {
		if err := preadAll(r.fd, gpu.HostBytes(r.slot, staged), off); err != nil {
			return err
		}
		if err := r.stream.Copy(r.mem.Addr(), r.slot, staged); err != nil {
			return err
		}
	}
	if staged < sharedBlock {
		err := preadAll(r.fd, r.bar[staged:], off+int64(staged))
		wc.Fence()
		if err != nil {
			return err
		}
	}
	return r.stream.Synchronize()
}

func preadAll(fd int, p []byte, off int64) error {
	n, err := unix.Pread(fd, p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("read %d of %d bytes", n, len(p))
	}
	return err
}

// TestHardwareSharedReads measures shared reads beside the present choice.
func TestHardwareSharedReads(t *testing.T) {
	device, m := realDevice(t)
	measureSharedReads(t, device, m, *sharedFlags.dir, *sharedFlags.size, *sharedFlags.time, []int{8, 16}, 3)
}

// realDevice is the first GPU of this machine.
func realDevice(t *testing.T) (gpu.Device, *machine.Machine) {
	t.Helper()
	m, err := machine.OpenAs(machine.Real)
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() { m.Close() })
	device, err := m.GPU.Open(0)
	if err != nil {
		t.Skipf("needs an NVIDIA GPU: %v", err)
	}
	t.Cleanup(func() { device.Close() })
	return device, m
}

// TestSharedReads tries the measurement on the software GPU, and that the bytes arrive.
func TestSharedReads(t *testing.T) {
	device, m := softDevice(t)
	measureSharedReads(t, device, m, "", 8<<20, time.Millisecond, []int{2}, 1)
}

func measureSharedReads(t *testing.T, device gpu.Device, m *machine.Machine, dir string, size int64, each time.Duration, callers []int, rounds int) {
	most := slices.Max(callers)
	data := noisy(int(size), 11)
	w := &fixture{device: device, ladder: Open(device, dev.Of(m), nil, Settings{}), src: FileSource(adoptIn(t, dir, "shared", data))}
	defer w.ladder.Close()
	base, err := device.Alloc(gpu.KindDevice, uint64(most)*sharedBlock, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(base)
	w.mem = gpu.Span{Base: base, Len: uint64(most) * sharedBlock}
	w.ladder.Register(w.mem, gpu.KindDevice)
	defer w.ladder.Deregister(w.mem)
	readers := make([]*sharedReader, most)
	for i := range readers {
		readers[i] = newSharedReader(t, w, i)
	}
	for _, staged := range sharedParts {
		r := readers[most-1]
		if err := r.read(sharedBlock, staged); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, sharedBlock)
		if err := device.CopyOut(got, r.mem.Addr()); err != nil || string(got) != string(data[sharedBlock:2*sharedBlock]) {
			t.Fatalf("%d KiB staged: wrong bytes, %v", staged>>10, err)
		}
		if err := device.CopyIn(r.mem.Addr(), make([]byte, sharedBlock)); err != nil {
			t.Fatal(err)
		}
	}
	plan := w.ladder.Plan(w.src)
	for _, n := range callers {
		lines := map[string][]string{}
		for range rounds { // in turns
			now := blockRate(t, n, sharedBlock, size, each, func(i int, off int64) error {
				ops := []Op{{Src: w.src, Off: off, Mem: readers[i].mem, Kind: gpu.KindDevice, Buf: always{}}}
				return plan.Run(context.Background(), ops, make([]route.Receipt, 1))
			})
			lines["as now"] = append(lines["as now"], now)
			for _, staged := range sharedParts {
				name := fmt.Sprintf("%4d KiB staged", staged>>10)
				lines[name] = append(lines[name], blockRate(t, n, sharedBlock, size, each, func(i int, off int64) error { return readers[i].read(off, staged) }))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(lines)) {
			t.Logf("%2d callers, %s: %s", n, name, strings.Join(lines[name], ", "))
		}
	}
}

// blockRate is the rate of callers that read blocks of a file, and their processor time.
func blockRate(t *testing.T, callers int, block, size int64, each time.Duration, read func(i int, off int64) error) string {
	t.Helper()
	var (
		wg     sync.WaitGroup
		blocks = make([]int64, callers)
	)
	before, began := usage(), time.Now()
	for i := range callers {
		wg.Go(func() {
			for at := int64(i); blocks[i] == 0 || time.Since(began) < each; at += int64(callers) {
				if err := read(i, at*block%size); err != nil {
					t.Error(err)
					return
				}
				blocks[i]++
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	var gb float64
	for _, n := range blocks {
		gb += float64(n*block) / 1e9
	}
	return fmt.Sprintf("%.1f GB/s %.2f s/GB", gb/took, (usage().cpu-before.cpu).Seconds()/gb)
}

// A use is what the process has used.
type use struct {
	cpu    time.Duration
	faults int64
}

func usage() use {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return use{time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Minflt}
}
