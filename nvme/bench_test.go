package nvme_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/block"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// The driver and the software controller together are compared with plain
// preads of the same file: as many threads, O_DIRECT, random offsets.
const (
	benchThreads = 4
	benchFile    = 64 << 20
)

func benchDrive(b *testing.B) *os.File {
	b.Helper()
	f, err := os.OpenFile(filepath.Join(b.TempDir(), "drive"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		b.Skip("needs a file system with O_DIRECT")
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	mem, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem {
		mem[i] = byte(i)
	}
	for off := int64(0); off < benchFile; off += int64(len(mem)) {
		if _, err := f.WriteAt(mem, off); err != nil {
			b.Fatal(err)
		}
	}
	return f
}

// place is where read i of a benchmark begins: all over the file.
func place(i, size int) int64 {
	n := benchFile / size
	return int64(i*7919%n) * int64(size)
}

// A reader carries out n reads of a benchmark.
type reader interface{ read(b *testing.B, n int) }

// preads are plain ones, into a buffer that each thread has for itself, or into
// the driver's memory, in turn.
type preads struct {
	f    *os.File
	size int
	mem  []byte
	own  [][]byte // by thread; nil for mem
	next atomic.Int64
}

// ownBuffers maps a buffer for each thread, as a program would that knows
// nothing of the driver.
func ownBuffers(b *testing.B, size int) (list [][]byte) {
	b.Helper()
	for range benchThreads {
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Munmap(mem) })
		list = append(list, mem)
	}
	return list
}

func (p *preads) read(b *testing.B, n int) {
	end := p.next.Load() + int64(n)
	var all sync.WaitGroup
	for thread := range benchThreads {
		all.Go(func() {
			for i := int(p.next.Add(1)); i <= int(end); i = int(p.next.Add(1)) {
				mem := p.mem[i*p.size%len(p.mem):][:p.size]
				if p.own != nil {
					mem = p.own[thread]
				}
				if n, err := unix.Pread(int(p.f.Fd()), mem, place(i, p.size)); n != p.size || err != nil {
					b.Errorf("read %d bytes, %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
	p.next.Store(end)
}

// A driven is the driver with the software controller, at some depth.
type driven struct {
	q          *nvme.Queue
	buf        *nvme.Buffer
	size       int
	reqs       []nvme.Request
	free, done []*nvme.Request
	next       int
}

func newDriven(b *testing.B, f *os.File, size, depth int) *driven {
	b.Helper()
	d, err := block.Adopt(f)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	m := newMachine(b, soft.Config{}, soft.Drive{Config: softnvme.Config{Namespaces: []softnvme.Namespace{{Medium: d}}, Workers: benchThreads}})
	c, err := nvme.Open(m.Transport(0), nvme.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	q, err := c.NewQueue(depth)
	if err != nil {
		b.Fatal(err)
	}
	buf, err := c.AllocHost(depth * size)
	if err != nil {
		b.Fatal(err)
	}
	r := &driven{q: q, buf: buf, size: size, reqs: make([]nvme.Request, depth), done: make([]*nvme.Request, depth)}
	for i := range r.reqs {
		r.reqs[i] = nvme.Request{Op: nvme.OpRead, NS: c.Namespaces()[0], Blocks: uint32(size / 512), Buf: buf, Off: uint64(i * size)}
		r.free = append(r.free, &r.reqs[i])
	}
	return r
}

func (r *driven) read(b *testing.B, n int) {
	ctx := context.Background()
	for end := r.next + n; r.next < end || len(r.free) < len(r.reqs); {
		k := min(len(r.free), end-r.next)
		for _, q := range r.free[:k] {
			r.next++
			q.LBA = uint64(place(r.next, r.size)) / 512
		}
		if started, err := r.q.Submit(r.free[:k]...); started != k {
			b.Fatal(err)
		}
		r.free = r.free[:copy(r.free, r.free[k:])]
		k, err := r.q.Reap(ctx, r.done)
		if err != nil {
			b.Fatal(err)
		}
		for _, q := range r.done[:k] {
			if q.Err() != nil {
				b.Fatal(q.Err())
			}
		}
		r.free = append(r.free, r.done[:k]...)
	}
}

// benchAgainst has both read in turn, a few milliseconds each, so that whatever
// else the machine does harms both alike, and reports the driver's rate over
// that of the preads: the median of all turns. The best turn of each is what they
// do when the machine does nothing else.
func benchAgainst(b *testing.B, size, depth, turn int, own bool) {
	f := benchDrive(b)
	ours := newDriven(b, f, size, depth)
	plain := &preads{f: f, size: size, mem: ours.buf.Bytes()}
	if own {
		plain.own = ownBuffers(b, size)
	}
	timed := func(r reader) float64 {
		start := time.Now()
		r.read(b, turn)
		return time.Since(start).Seconds()
	}
	const turns = 20
	var ratios []float64
	best, base := math.Inf(1), math.Inf(1)
	for b.Loop() {
		for range turns {
			before, with, after := timed(plain), timed(ours), timed(plain)
			ratios = append(ratios, (before+after)/2/with)
			best, base = min(best, with), min(base, before, after)
		}
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(best*1e9, "ours-ns")
	b.ReportMetric(base*1e9, "base-ns")
}

// Against preads with one buffer for each thread.
func BenchmarkAgainstOwn1M(b *testing.B) { benchAgainst(b, 1<<20, benchThreads+1, 32, true) }
func BenchmarkAgainstOwn4K(b *testing.B) { benchAgainst(b, 4<<10, 32, 512, true) }

// Against preads that go through all of the driver's memory. It is an easier
// comparison: what more memory costs is left out of it.
func BenchmarkAgainstPread1M(b *testing.B) { benchAgainst(b, 1<<20, 2*benchThreads, 32, false) }

// BenchmarkDriver4K shows what a command costs, and that it allocates nothing.
func BenchmarkDriver4K(b *testing.B) {
	r := newDriven(b, benchDrive(b), 4<<10, 32)
	b.ReportAllocs()
	b.ResetTimer()
	r.read(b, b.N)
}
