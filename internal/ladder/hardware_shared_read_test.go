package ladder

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// sharedFlags are for measurements on a machine with a GPU:
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

// TestHardwareSharedReads measures reads from the page cache with and without shared ones,
// to find the loads at which sharing is faster.
func TestHardwareSharedReads(t *testing.T) {
	device, m := realDevice(t)
	for _, block := range []int64{1 << 20, 512 << 10} {
		measureSharedReads(t, device, m, *sharedFlags.dir, *sharedFlags.size, block, *sharedFlags.time, []int{1, 2, 3, 4, 6, 8, 10, 12, 16}, 3)
	}
}

// TestSharedReads tries the measurement on the software GPU.
func TestSharedReads(t *testing.T) {
	device, m := softDevice(t)
	measureSharedReads(t, device, m, "", 8<<20, 256<<10, time.Millisecond, []int{2}, 1)
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

func measureSharedReads(t *testing.T, device gpu.Device, m *machine.Machine, dir string, size, block int64, each time.Duration, callers []int, rounds int) {
	src := FileSource(adoptIn(t, dir, "shared", noisy(int(size), 11)))
	l := Open(device, dev.Of(m), nil, Settings{})
	defer l.Close()
	most := uint64(slices.Max(callers))
	base, err := device.Alloc(gpu.KindDevice, most*uint64(block), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(base)
	mem := gpu.Span{Base: base, Len: most * uint64(block)}
	l.Register(mem, gpu.KindDevice)
	defer l.Deregister(mem)
	read := func(s Share) func(i int, off int64) error {
		p := sharing(l, src, s)
		return func(i int, off int64) error {
			ops := []Op{{Src: src, Off: off, Mem: mem.Slice(uint64(i)*uint64(block), uint64(block)), Kind: gpu.KindDevice, Buf: always{}}}
			return p.Run(context.Background(), ops, make([]route.Receipt, 1))
		}
	}
	apart := read(Share{})
	together := read(Share{From: uint64(block), Most: 1 << 10})
	for _, n := range callers {
		var a, b []string
		for range rounds { // in turns
			a = append(a, blockRate(t, n, block, size, each, apart))
			b = append(b, blockRate(t, n, block, size, each, together))
		}
		t.Logf("%4d KiB, %2d callers, apart:  %s", block>>10, n, strings.Join(a, ", "))
		t.Logf("%4d KiB, %2d callers, shared: %s", block>>10, n, strings.Join(b, ", "))
	}
}

// sharing is the plan of a source with another border for shared reads, without direct
// routes.
func sharing(l *Ladder, src Source, s Share) *Plan {
	p := l.Plan(src)
	for len(p.traits) > 0 && p.traits[0].ID != route.Bar {
		p = p.slice(1, len(p.traits))
	}
	p.traits = slices.Clone(p.traits)
	if len(p.traits) > 0 {
		p.traits[0].Share = s
	}
	return p
}

func preadAll(fd int, p []byte, off int64) error {
	n, err := unix.Pread(fd, p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("read %d of %d bytes", n, len(p))
	}
	return err
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
