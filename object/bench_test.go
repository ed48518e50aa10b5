package object_test

import (
	"errors"
	"flag"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
)

var (
	benchURL   = flag.String("object.url", "", "object for BenchmarkReadAgainstBare (default: a web server in this process)")
	benchBytes = flag.Int64("object.bytes", 256<<20, "size of that server's object")
	benchBare  = flag.Int("object.bare", 16, "requests in flight of the program that only reads")
)

const benchRange = 4 << 20

// BenchmarkReadAgainstBare reads an object into memory of a GPU, in turns with a program
// that does nothing but read the same ranges into host memory, which it uses again. The
// ratio is the time of the latter over that of the former, the median of the rounds.
func BenchmarkReadAgainstBare(b *testing.B) {
	url := *benchURL
	if url == "" {
		srv := httptest.NewServer(zeros(*benchBytes))
		defer srv.Close()
		url = srv.URL + "/zeros"
	}
	src, err := object.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	into := intoGPU(b, url, uint64(src.Info().Size))
	bare := bareReader(b, src)
	into() // pins memory, learns the number of parts, makes connections
	bare()
	b.SetBytes(src.Info().Size)
	var ours, base, ratios, more []float64
	for b.Loop() {
		start := cpuTime()
		first := into()
		middle := cpuTime()
		second := bare()
		more = append(more, ((middle - start) - (cpuTime() - middle)).Seconds())
		ours, base = append(ours, first.Seconds()), append(base, second.Seconds())
		ratios = append(ratios, second.Seconds()/first.Seconds())
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(slices.Min(ours)*1e9, "ours-ns")
	b.ReportMetric(slices.Min(base)*1e9, "base-ns")
	slices.Sort(more)
	b.ReportMetric(more[len(more)/2]*1e9/float64(src.Info().Size), "more-cpu-s/GB")
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bareReader returns a function that reads the whole object in ranges and says how long
// that took.
func bareReader(b *testing.B, src *object.File) func() time.Duration {
	bufs := make([][]byte, *benchBare)
	for i := range bufs {
		bufs[i] = make([]byte, benchRange)
	}
	return func() time.Duration {
		start := time.Now()
		var g errgroup.Group
		next := make(chan int64)
		for _, buf := range bufs {
			g.Go(func() (err error) {
				for off := range next {
					if _, gerr := src.Get(buf, off); gerr != nil {
						err = gerr
					}
				}
				return err
			})
		}
		for off := int64(0); off < src.Info().Size; off += benchRange {
			next <- off
		}
		close(next)
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}

// intoGPU returns a function that opens the object, reads all of it into GPU memory with
// the checksum of the store, if it has one, and says how long that took.
func intoGPU(b *testing.B, url string, size uint64) func() time.Duration {
	m, err := machine.Open()
	if err != nil {
		b.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		b.Fatal(err)
	}
	dev, err := drv.Device(0)
	if err != nil {
		b.Fatal(err)
	}
	mem, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		dev.Free(mem)
		drv.Close()
		m.Close()
	})
	return func() time.Duration {
		start := time.Now()
		src, err := object.Open(b.Context(), url)
		if err != nil {
			b.Fatal(err)
		}
		from, err := drv.RegisterSource(src)
		if err != nil {
			b.Fatal(err)
		}
		r, err := from.ReadAt(b.Context(), gpu.Span{Base: mem, Len: size}, 0)
		if err != nil || uint64(r.Bytes) != size {
			b.Fatalf("%d of %d bytes: %v", r.Bytes, size, err)
		}
		if err := errors.Join(from.Close(), src.Close()); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}
