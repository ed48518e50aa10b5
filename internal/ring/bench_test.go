package ring

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// BenchmarkWarm compares the ring with plain preads of the same sizes by as
// many threads, into as much memory, in turns. "null" is the ring's own cost,
// as it is where copies do not use the CPU; "soft" includes the software GPU's
// copy, which does.
func BenchmarkWarm(b *testing.B) {
	const fileLen = 256 << 20
	f := newFile(b, noise(1, fileLen))
	f.data = nil
	for _, kind := range []string{"null", "soft"} {
		for _, bb := range []struct {
			name    string
			callers int
			block   int64
		}{
			{"one request", 1, fileLen},
			{"2x16M", 2, 16 << 20},
			{"2x1M", 2, 1 << 20},
			{"2x64K", 2, 64 << 10},
			{"1x4K", 1, 4 << 10},
		} {
			b.Run(fmt.Sprintf("%s/%s", kind, bb.name), func(b *testing.B) {
				var dev gpu.Device = &nullGPU{t: b}
				addr := gpu.Addr(4096)
				if kind == "soft" {
					dev = openGPU(b)
					addr = newBuffer(b, dev, fileLen).addr()
				}
				r := openRing(b, dev, Config{})
				mem, err := unix.Mmap(-1, 0, fileLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
				if err != nil {
					b.Fatal(err)
				}
				defer unix.Munmap(mem)
				var ratios []float64
				// Plain preads of one large request use as many threads as there
				// are pipelines, in slots of the same size.
				threads, step := bb.callers, bb.block
				if bb.callers == 1 && bb.block > r.sizing.slot {
					threads, step = r.sizing.pipelines, r.sizing.slot
				}
				b.SetBytes(fileLen)
				for b.Loop() {
					plain := timed(b, threads, step, fileLen, func(_ int, off, n int64) error {
						_, err := unix.Pread(f.buffered, mem[off:off+n], off)
						return err
					})
					ring := timed(b, bb.callers, bb.block, fileLen, func(_ int, off, n int64) error {
						var q [1]Request
						var res [1]Result
						q[0] = Request{Buffered: f.buffered, Direct: -1, Off: off, Addr: addr + gpu.Addr(off), Len: n}
						return r.Run(context.Background(), q[:], res[:])
					})
					ratios = append(ratios, plain.Seconds()/ring.Seconds())
				}
				slices.Sort(ratios)
				b.ReportMetric(ratios[len(ratios)/2], "of-pread")
			})
		}
	}
}

// The ring's own cost, where copies do not use the CPU, beside plain preads of the
// same chunks by as many threads. thresholds.txt limits the ratio.
func BenchmarkOwnCost(b *testing.B) {
	f, r, _ := newOwnCost(b)
	for b.Loop() {
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: 4096, Len: ownCostLen}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOwnPreads(b *testing.B) {
	f, r, mem := newOwnCost(b)
	for b.Loop() {
		timed(b, r.sched.workerTargetLocked(), r.sizing.slot, ownCostLen, func(c int, off, n int64) error {
			at := int64(c) * r.sizing.slot // the ring uses its slots again, too
			_, err := unix.Pread(f.buffered, mem[at:at+n], off)
			return err
		})
	}
}

const ownCostLen = 64 << 20

func newOwnCost(b *testing.B) (*testFile, *Ring, []byte) {
	b.Helper()
	b.SetBytes(ownCostLen)
	mem, err := unix.Mmap(-1, 0, ownCostLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Munmap(mem) })
	return newFile(b, noise(1, ownCostLen)), openRing(b, &nullGPU{t: b}, Config{}), mem
}

// timed lets callers take blocks in turn until all is done.
func timed(t testing.TB, callers int, block, total int64, do func(c int, off, n int64) error) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	for c := range callers {
		wg.Go(func() {
			for off := int64(c) * block; off < total; off += int64(callers) * block {
				if err := do(c, off, min(block, total-off)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
