package p2p

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft/pcie"
)

const mib = 1 << 20

// A drive is what reads a file into GPU memory: a descriptor, and pinned and
// mapped memory to read into.
type drive struct {
	*fixture
	fd    int
	va, n uint64
	table *PageTable
	addrs []uint64
}

func newDrive(b *testing.B, n uint64, s setup) *drive {
	b.Helper()
	path := filepath.Join(b.TempDir(), "data")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	chunk := make([]byte, mib)
	for range n / mib {
		if _, err := f.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	s.mapped, s.memory = true, 2*n
	d := &drive{fixture: newFixture(b, s), fd: int(f.Fd()), n: n}
	d.va = d.alloc(n)
	d.fill(d.va, int(n), 1) // no page faults in what is measured
	d.table, _ = d.pin(d.va, n)
	m, err := d.rm.DMAMapPages(d.far, d.table)
	d.check(err)
	d.addrs = m.Addresses
	return d
}

func (d *drive) close() {
	d.put(d.va, d.table)
	d.free(d.va)
	d.fixture.close()
}

// whole is a DMA as one list of pages, as a drive gets it.
func (d *drive) dma(sg []pcie.Range, off int64) error {
	l, err := d.far.AcquireAll(sg, pcie.Write)
	if err != nil {
		return err
	}
	n, err := unix.Preadv(d.fd, l.Segs(), off)
	if err != nil {
		return err
	}
	return l.Release(n)
}

// BenchmarkPreadvPlain reads 1 MiB into the frames themselves.
func BenchmarkPreadvPlain(b *testing.B) {
	d := newDrive(b, 64*mib, setup{})
	defer d.close()
	segs := d.table.pin.access.Segs()
	b.SetBytes(mib)
	for i := 0; b.Loop(); i++ {
		off := i % 64 * mib
		one := [][]byte{segs[0][off : off+mib]}
		if n, err := unix.Preadv(d.fd, one, int64(off)); n != mib || err != nil {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkPreadvDMA reads 1 MiB into the same frames, by DMA over the fabric.
func BenchmarkPreadvDMA(b *testing.B) { benchmarkDMA(b, setup{}) }

// BenchmarkPreadvDMATranslated is the same with an IOMMU in the way.
func BenchmarkPreadvDMATranslated(b *testing.B) { benchmarkDMA(b, setup{iommu: pcie.Translating}) }

func benchmarkDMA(b *testing.B, s setup) {
	d := newDrive(b, 64*mib, s)
	defer d.close()
	sg := ranges(d.addrs)
	b.SetBytes(mib)
	for i := 0; b.Loop(); i++ {
		k := i % 64
		if err := d.dma(sg[k*mib/PageSize:(k+1)*mib/PageSize], int64(k*mib)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPinAndMap pins and maps 64 MiB, 256 MiB and 1 GiB; BenchmarkRead
// reads as much in pieces of 1 MiB.
func BenchmarkPinAndMap(b *testing.B) {
	for _, n := range []uint64{64, 256, 1024} {
		b.Run(fmt.Sprintf("%dMiB", n), func(b *testing.B) {
			r := newFixture(b, setup{memory: 2 * n * mib, mapped: true, iommu: pcie.Translating})
			va := r.alloc(n * mib)
			b.SetBytes(int64(n * mib))
			for b.Loop() {
				table, _ := r.pin(va, n*mib)
				if _, err := r.rm.DMAMapPages(r.far, table); err != nil {
					b.Fatal(err)
				}
				r.put(va, table)
			}
			r.free(va)
			r.close()
		})
	}
}

// BenchmarkRead1GiB is what a pin of 1 GiB is compared with.
func BenchmarkRead1GiB(b *testing.B) {
	const n = 1024 * mib
	d := newDrive(b, n, setup{})
	defer d.close()
	sg := ranges(d.addrs)
	b.SetBytes(n)
	for b.Loop() {
		for k := range n / mib {
			if err := d.dma(sg[k*mib/PageSize:(k+1)*mib/PageSize], int64(k*mib)); err != nil {
				b.Fatal(err)
			}
		}
	}
}
