package object_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/crc32c"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
)

var (
	benchURL   = flag.String("object.url", "", "object for BenchmarkReadAgainstBare (default: a web server in this process)")
	benchBytes = flag.Int64("object.bytes", 256<<20, "size of that server's object")
	benchBare  = flag.Int("object.bare", 16, "requests in flight of the program that only reads")
)

const benchRange = 4 << 20

// BenchmarkReadAgainstBare reads an object into memory of a GPU, in turns with programs
// that read the same ranges into host memory, which they use again:
//
//   - ratio: one that does nothing but read, with package net/http;
//   - ratio-client: the same with the connections of package object;
//   - ratio-work: one that reads with package net/http, sums the bytes, if the store has a
//     checksum, and copies them to the GPU. On a software machine the processor makes that
//     copy.
//
// A ratio is the time of the other over that of the read, the median of the rounds.
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
	dev, drv := openGPU(b)
	mem, err := dev.Alloc(gpu.KindDevice, uint64(src.Info().Size), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Free(mem)
	plain := plainProgram(b, url)
	programs := []struct {
		name string
		run  func() time.Duration
	}{
		{"", intoGPU(b, drv, url, gpu.Span{Base: mem, Len: uint64(src.Info().Size)})},
		{"ratio", inRanges(b, src, plain)},
		{"ratio-client", inRanges(b, src, func(buf []byte, off int64) error {
			_, err := src.Get(buf, off)
			return err
		})},
		{"ratio-work", inRanges(b, src, func(buf []byte, off int64) error {
			err := plain(buf, off)
			if src.Info().Sum != nil {
				crc32c.Sum(buf)
			}
			return errors.Join(err, dev.CopyIn(mem+gpu.Addr(off), buf))
		})},
	}
	for _, p := range programs {
		p.run() // pins memory, learns the number of parts, makes connections
	}
	b.SetBytes(src.Info().Size)
	wall, cpu := make([][]float64, len(programs)), make([][]float64, len(programs))
	for b.Loop() {
		for i, p := range programs {
			start := cpuTime()
			wall[i] = append(wall[i], p.run().Seconds())
			cpu[i] = append(cpu[i], (cpuTime() - start).Seconds())
		}
	}
	gb := float64(src.Info().Size) / 1e9
	b.ReportMetric(slices.Min(wall[0])*1e9, "ours-ns")
	b.ReportMetric(slices.Min(wall[1])*1e9, "base-ns")
	for i, p := range programs[1:] {
		b.ReportMetric(median(pairs(wall[i+1], wall[0], func(other, ours float64) float64 { return other / ours })), p.name)
	}
	b.ReportMetric(median(pairs(cpu[0], cpu[1], func(ours, other float64) float64 { return (ours - other) / gb })), "more-cpu-s/GB")
}

func pairs(a, b []float64, f func(a, b float64) float64) []float64 {
	list := make([]float64, len(a))
	for i := range a {
		list[i] = f(a[i], b[i])
	}
	return list
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// cpuTime is the processor time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// plainProgram returns a function that fills a buffer by one request, as a program would
// that uses package net/http as it is.
func plainProgram(b *testing.B, url string) func(buf []byte, off int64) error {
	sign := func(*http.Request) error { return nil }
	if key, ok := strings.CutPrefix(url, "s3://"); ok {
		url = os.Getenv("AWS_ENDPOINT_URL") + "/" + key
		id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		sign = func(req *http.Request) error {
			const hash = "UNSIGNED-PAYLOAD"
			req.Header.Set("X-Amz-Content-Sha256", hash)
			return v4.NewSigner().SignHTTP(b.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, req, hash, "s3", "us-east-1", time.Now())
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *benchBare}}
	b.Cleanup(client.CloseIdleConnections)
	return func(buf []byte, off int64) error {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(len(buf))-1))
		if err := sign(req); err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusPartialContent {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		_, err = io.ReadFull(resp.Body, buf)
		_, _ = resp.Body.Read(make([]byte, 1)) // the end: the connection is used again
		return err
	}
}

// inRanges returns a function that reads the whole object in ranges, several at a time,
// and says how long that took.
func inRanges(b *testing.B, src *object.File, get func(buf []byte, off int64) error) func() time.Duration {
	bufs := make([][]byte, *benchBare)
	for i := range bufs {
		bufs[i] = make([]byte, benchRange)
	}
	size := src.Info().Size
	return func() time.Duration {
		start := time.Now()
		var g errgroup.Group
		next := make(chan int64)
		for _, buf := range bufs {
			g.Go(func() (err error) {
				for off := range next {
					err = errors.Join(err, get(buf[:min(benchRange, size-off)], off))
				}
				return err
			})
		}
		for off := int64(0); off < size; off += benchRange {
			next <- off
		}
		close(next)
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}

func openGPU(b *testing.B) (gpu.Device, *cufile.Driver) {
	m, err := machine.Open()
	if err != nil {
		b.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		drv.Close()
		m.Close()
	})
	dev, err := drv.Device(0)
	if err != nil {
		b.Fatal(err)
	}
	return dev, drv
}

// intoGPU returns a function that opens the object, reads all of it into GPU memory with
// the checksum of the store, if it has one, and says how long that took.
func intoGPU(b *testing.B, drv *cufile.Driver, url string, mem gpu.Span) func() time.Duration {
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
		r, err := from.ReadAt(b.Context(), mem, 0)
		if err != nil || uint64(r.Bytes) != mem.Len {
			b.Fatalf("%d of %d bytes: %v", r.Bytes, mem.Len, err)
		}
		if err := errors.Join(from.Close(), src.Close()); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
}
