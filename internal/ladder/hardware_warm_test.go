package ladder

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// Measurements of reads from the page cache, for a machine with a GPU. They use the flags of
// TestHardwareSharedReads.

// TestHardwareFirstTouch measures what the first use of mapped GPU memory by the CPU
// costs. Reads of 1 MiB into a buffer of some GB reach 23 GB/s in the first pass, then 31,
// 37 and 39, as if each page that BAR1 had not reached yet cost a microsecond.
//
// A quarter of the memory is read into as it is; of the others, something is loaded or
// stored before. That is done with a new mapping, with a second mapping of the same memory,
// and with new memory. If page faults are counted, the mapping is made too late. If a
// second mapping is as fast as used pages, the cost is below this kernel, in the tables of
// a hypervisor; if not, in those of the mapping. If one load for each 2 MiB makes the first
// pass as fast as the second, a registration can do that.
func TestHardwareFirstTouch(t *testing.T) {
	device, m := realDevice(t)
	measureFirstTouch(t, device, m, *sharedFlags.dir, 2<<30, 6)
}

// TestFirstTouch tries the measurement on the software GPU.
func TestFirstTouch(t *testing.T) {
	device, m := softDevice(t)
	measureFirstTouch(t, device, m, "", 16<<20, 2)
}

// touches are what is done with a quarter before it is read into.
var touches = []struct {
	name  string
	touch func(mem []byte)
}{
	{"nothing", func([]byte) {}},
	{"a load for each 2 MiB", func(mem []byte) { loadEvery(mem, 2<<20) }},
	{"a load for each 4 KiB", func(mem []byte) { loadEvery(mem, 4<<10) }},
	{"a store for each 2 MiB", func(mem []byte) {
		for at := 0; at < len(mem); at += 2 << 20 {
			wc.Store(mem[at:], make([]byte, 64))
		}
	}},
}

// loaded keeps the compiler from leaving loads out.
var loaded atomic.Uint64

func loadEvery(mem []byte, step int) {
	var sum uint64
	for at := 0; at < len(mem); at += step {
		sum += wc.LoadWord(mem[at:])
	}
	loaded.Add(sum)
}

func measureFirstTouch(t *testing.T, device gpu.Device, m *machine.Machine, dir string, size uint64, callers int) {
	l := Open(device, dev.Of(m), nil, Settings{})
	defer l.Close()
	const block = 1 << 20
	src := FileSource(adoptIn(t, dir, "touch", noisy(32*block, 12)))
	fd := src.File().Buffered()
	bar := l.Plan(src).keep(route.Bar)
	if len(bar.routes) == 0 {
		t.Skip("needs GPU memory that can be mapped")
	}
	for _, memory := range []string{"new memory", "other memory"} {
		base, err := device.Alloc(gpu.KindDevice, size, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer device.Free(base) // after the other one was allocated
		for _, mapping := range []string{"first mapping", "second mapping"} {
			span := gpu.Span{Base: base, Len: size}
			l.Register(span, gpu.KindDevice)
			mem := bar.routes[0].Mapping(base)
			if mem == nil {
				t.Skip("needs GPU memory that can be mapped")
			}
			touchQuarters(t, memory+", "+mapping, fd, mem, callers, block)
			l.Deregister(span)
		}
	}
}

func touchQuarters(t *testing.T, what string, fd int, mem []byte, callers, block int) {
	t.Helper()
	quarter := len(mem) / len(touches)
	for i, how := range touches {
		part := mem[i*quarter : (i+1)*quarter]
		before, began := usage(), time.Now()
		how.touch(part)
		line := fmt.Sprintf("%s, %s: %.1f ms, %d faults; passes", what, how.name, time.Since(began).Seconds()*1e3, usage().faults-before.faults)
		for range 3 {
			line += ", " + touchPass(t, fd, part, callers, block)
		}
		t.Log(line)
	}
}

// touchPass reads blocks into all of mem.
func touchPass(t *testing.T, fd int, mem []byte, callers, block int) string {
	t.Helper()
	var (
		wg   sync.WaitGroup
		next atomic.Int64
	)
	before, began := usage(), time.Now()
	for range callers {
		wg.Go(func() {
			for at := int(next.Add(int64(block))) - block; at < len(mem); at = int(next.Add(int64(block))) - block {
				if err := preadAll(fd, mem[at:at+block], int64(at%(32*block))); err != nil {
					t.Error(err)
					return
				}
				wc.Fence()
			}
		})
	}
	wg.Wait()
	now, gb := usage(), float64(len(mem))/1e9
	return fmt.Sprintf("%.1f GB/s %.2f s/GB %d faults", gb/time.Since(began).Seconds(), (now.cpu-before.cpu).Seconds()/gb, now.faults-before.faults)
}

// TestHardwareFewCallers measures reads of 16 MiB by four callers, and by others for
// comparison, by the ring alone with numbers of workers and sizes of slots.
func TestHardwareFewCallers(t *testing.T) {
	device, m := realDevice(t)
	measureFewCallers(t, device, m, *sharedFlags.dir, *sharedFlags.size, 16<<20, *sharedFlags.time, []int{4, 2, 16}, 3)
}

// TestFewCallers tries the measurement on the software GPU.
func TestFewCallers(t *testing.T) {
	device, m := softDevice(t)
	measureFewCallers(t, device, m, "", 4<<20, 1<<20, time.Millisecond, []int{2}, 1)
}

// few are the settings that are compared.
var few = []struct {
	name string
	set  Settings
}{
	{"as now", Settings{}},
	{"12 workers", Settings{Workers: 12}},
	{"14 workers", Settings{Workers: 14}},
	{"16 workers", Settings{Workers: 16}},
	{"slots of 2 MiB", Settings{Slot: 2 << 20}},
	{"slots of 2 MiB, 16 workers", Settings{Slot: 2 << 20, Workers: 16}},
}

func measureFewCallers(t *testing.T, device gpu.Device, m *machine.Machine, dir string, size, block int64, each time.Duration, callers []int, rounds int) {
	src := FileSource(adoptIn(t, dir, "few", noisy(int(size), 13)))
	most := uint64(slices.Max(callers))
	base, err := device.Alloc(gpu.KindDevice, most*uint64(block), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(base)
	mem := gpu.Span{Base: base, Len: most * uint64(block)}
	read := make([]func(i int, off int64) error, len(few))
	for k, f := range few {
		l := Open(device, dev.Of(m), nil, f.set)
		defer l.Close()
		plan := l.Plan(src).keep(route.Ring)
		read[k] = func(i int, off int64) error {
			ops := []Op{{Src: src, Off: off, Mem: mem.Slice(uint64(i)*uint64(block), uint64(block)), Kind: gpu.KindDevice, Buf: always{}}}
			return plan.Run(context.Background(), ops, make([]route.Receipt, 1))
		}
		blockRate(t, int(most), block, size, each/4, read[k]) // makes pipelines
	}
	for _, n := range callers {
		lines := make([]string, len(few))
		for range rounds { // in turns
			for k := range few {
				lines[k] += ", " + blockRate(t, n, block, size, each, read[k])
			}
		}
		for k, f := range few {
			t.Logf("%2d callers, %s: %s", n, f.name, lines[k][2:])
		}
		t.Logf("%2d callers, %s: %s", n, few[0].name, pieces(t, func() string { return blockRate(t, n, block, size, each/8, read[0]) }))
	}
}

// TestHardwareWindows measures reads by the ring with and without windows: BAR1 mappings
// into which a part of the chunks is read.
func TestHardwareWindows(t *testing.T) {
	device, m := realDevice(t)
	measureWindows(t, device, m, *sharedFlags.dir, *sharedFlags.size, *sharedFlags.time, []int64{2 << 20, 4 << 20, 16 << 20, 64 << 20}, []int{1, 2, 4, 8, 16}, 3)
}

// TestWindows tries the measurement on the software GPU.
func TestWindows(t *testing.T) {
	device, m := softDevice(t)
	measureWindows(t, device, m, "", 4<<20, time.Millisecond, []int64{2 << 20}, []int{2}, 1)
}

func measureWindows(t *testing.T, device gpu.Device, m *machine.Machine, dir string, size int64, each time.Duration, blocks []int64, callers []int, rounds int) {
	src := FileSource(adoptIn(t, dir, "windows", noisy(int(size), 14)))
	total := uint64(slices.Max(callers)) * uint64(slices.Max(blocks))
	base, err := device.Alloc(gpu.KindDevice, total, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Free(base)
	mem := gpu.Span{Base: base, Len: total}
	l := Open(device, dev.Of(m), nil, Settings{})
	defer l.Close()
	l.Register(mem, gpu.KindDevice)
	defer l.Deregister(mem)
	if !allowWindows(l, true) {
		t.Skip("needs GPU memory that can be mapped")
	}
	plan := l.Plan(src).keep(route.Bar, route.Ring)
	for _, block := range blocks {
		read := func(i int, off int64) (route.Receipt, error) {
			ops := []Op{{Src: src, Off: off, Mem: mem.Slice(uint64(i)*uint64(block), uint64(block)), Kind: gpu.KindDevice, Buf: always{}}}
			res := make([]route.Receipt, 1)
			err := plan.Run(context.Background(), ops, res)
			return res[0], err
		}
		for _, n := range callers {
			measureWindowLoad(t, l, n, block, size, each, rounds, read)
		}
	}
}

// measureWindowLoad measures one number of callers and one length.
func measureWindowLoad(t *testing.T, l *Ladder, callers int, block, size int64, each time.Duration, rounds int, read func(i int, off int64) (route.Receipt, error)) {
	t.Helper()
	var moved, stored atomic.Int64
	rate := func(windows bool, each time.Duration) string {
		allowWindows(l, windows)
		return blockRate(t, callers, block, size, each, func(i int, off int64) error {
			r, err := read(i, off)
			if windows {
				moved.Add(r.Bytes)
				stored.Add(r.By[route.Bar])
			}
			return err
		})
	}
	rate(true, each/4) // makes pipelines, and stores to the memory once
	var without, with []string
	for range rounds { // in turns
		without = append(without, rate(false, each))
		with = append(with, rate(true, each))
	}
	t.Logf("%2d MiB, %2d callers, without: %s", block>>20, callers, strings.Join(without, ", "))
	t.Logf("%2d MiB, %2d callers, windows: %s, for %.2f of the bytes", block>>20, callers, strings.Join(with, ", "), float64(stored.Load())/float64(moved.Load()))
}

// pieces says what the threads of the ring do while something runs.
func pieces(t *testing.T, run func() string) string {
	t.Helper()
	rec := trace.Start()
	began := time.Now()
	rate := run()
	took := float64(time.Since(began).Microseconds())
	rec.Stop()
	var text bytes.Buffer
	if err := errors.Join(rec.Write(&text), rec.Close()); err != nil {
		t.Fatal(err)
	}
	var chrome struct {
		TraceEvents []struct {
			Name string
			Dur  float64
			Args struct{ Bytes float64 }
		}
	}
	if err := json.Unmarshal(text.Bytes(), &chrome); err != nil {
		t.Fatal(err)
	}
	count, micros, sum := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, e := range chrome.TraceEvents {
		count[e.Name]++
		micros[e.Name] += e.Dur
		sum[e.Name] += e.Args.Bytes
	}
	return fmt.Sprintf("%s: %.1f threads read, %.2f GB/s each, chunks of %.2f MiB; %.1f threads wait for copies, %.0f us each time",
		rate, micros["read"]/took, sum["read"]/micros["read"]/1e3, sum["read"]/count["read"]/(1<<20), micros["wait"]/took, micros["wait"]/count["wait"])
}
