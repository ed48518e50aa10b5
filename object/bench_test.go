package object_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
)

var benchURL = flag.String("object.url", "", "object for BenchmarkRead")

// BenchmarkRead reads an object into memory of a GPU, and by a program that does nothing
// but read the same ranges into host memory that it uses again, with as many requests in
// flight as named.
func BenchmarkRead(b *testing.B) {
	if *benchURL == "" {
		b.Skip("no -object.url")
	}
	for _, requests := range []int{4, 8, 16, 32} {
		b.Run(fmt.Sprintf("bare-%d", requests), func(b *testing.B) { benchBare(b, requests) })
	}
	b.Run("gpu", benchGPU)
}

const benchRange = 4 << 20

func benchBare(b *testing.B, requests int) {
	bucket, key, err := object.BucketOf(b.Context(), *benchURL)
	if err != nil {
		b.Fatal(err)
	}
	info, err := bucket.Stat(b.Context(), key)
	if err != nil {
		b.Fatal(err)
	}
	bufs := make([][]byte, requests)
	for i := range bufs {
		bufs[i] = make([]byte, benchRange)
	}
	b.SetBytes(info.Size)
	for b.Loop() {
		var g errgroup.Group
		next := make(chan int64)
		for _, buf := range bufs {
			g.Go(func() error {
				for off := range next {
					if err := readRange(b.Context(), bucket, &info, off, buf); err != nil {
						b.Error(err)
					}
				}
				return nil
			})
		}
		for off := int64(0); off < info.Size; off += benchRange {
			next <- off
		}
		close(next)
		_ = g.Wait()
	}
}

func readRange(ctx context.Context, bucket object.Bucket, info *object.Info, off int64, buf []byte) error {
	n := min(info.Size-off, int64(len(buf)))
	body, err := bucket.Get(ctx, info, off, n)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(body, buf[:n]); err != nil {
		return err
	}
	_, _ = body.Read(make([]byte, 1)) // its end
	return body.Close()
}

func benchGPU(b *testing.B) {
	m, err := machine.Open()
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		b.Fatal(err)
	}
	defer drv.Close()
	dev, err := drv.Device(0)
	if err != nil {
		b.Fatal(err)
	}
	src, err := object.Open(b.Context(), *benchURL)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	from, err := drv.RegisterSource(src)
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	size := uint64(src.Info().Size)
	mem, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Free(mem)
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := from.ReadAt(b.Context(), gpu.Span{Dev: 0, Base: mem, Len: size}, 0); err != nil {
			b.Fatal(err)
		}
	}
}
