package nvme_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft/block"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/nvme/box"
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

func benchPread(b *testing.B, size int) {
	f := benchDrive(b)
	var next atomic.Int64
	b.SetBytes(int64(size))
	b.ResetTimer()
	var all sync.WaitGroup
	for range benchThreads {
		all.Go(func() {
			mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				b.Error(err)
				return
			}
			defer unix.Munmap(mem)
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if n, err := unix.Pread(int(f.Fd()), mem, place(i, size)); n != size || err != nil {
					b.Errorf("read %d bytes, %v", n, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func benchQueue(b *testing.B, size, depth int) {
	f := benchDrive(b)
	d, err := block.Adopt(f)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	m, err := box.New(box.Config{Drives: []softnvme.Config{{Namespaces: []softnvme.Namespace{{Medium: d}}, Workers: benchThreads}}})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	c, err := nvme.Open(m.Transport(0), nvme.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	q, err := c.NewQueue(depth)
	if err != nil {
		b.Fatal(err)
	}
	buf, err := c.AllocHost(depth * size)
	if err != nil {
		b.Fatal(err)
	}
	ns := c.Namespaces()[0]
	reqs, free, done := make([]nvme.Request, depth), make([]*nvme.Request, 0, depth), make([]*nvme.Request, depth)
	for i := range reqs {
		reqs[i] = nvme.Request{Op: nvme.OpRead, NS: ns, Blocks: uint32(size / 512), Buf: buf, Off: uint64(i * size)}
		free = append(free, &reqs[i])
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	ctx := context.Background()
	for started, ended := 0, 0; ended < b.N; {
		n := min(len(free), b.N-started)
		for _, r := range free[:n] {
			started++
			r.LBA = uint64(place(started, size)) / 512
		}
		if k, err := q.Submit(free[:n]...); k != n {
			b.Fatal(err)
		}
		free = free[:copy(free, free[n:])]
		n, err := q.Reap(ctx, done)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range done[:n] {
			if r.Err() != nil {
				b.Fatal(r.Err())
			}
		}
		free = append(free, done[:n]...)
		ended += n
	}
}

// One command more than there are threads keeps them all busy. Many more would
// compare the processor's caches: the preads have one buffer each.
func BenchmarkPread1M(b *testing.B)  { benchPread(b, 1<<20) }
func BenchmarkDriver1M(b *testing.B) { benchQueue(b, 1<<20, benchThreads+1) }
func BenchmarkPread4K(b *testing.B)  { benchPread(b, 4<<10) }
func BenchmarkDriver4K(b *testing.B) { benchQueue(b, 4<<10, 32) }
