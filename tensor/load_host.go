package tensor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// maxHostReads limits the threads that copy out of the page cache: more of them
// wait for the same memory.
const maxHostReads = 16

// NewHostLoad is [NewLoad] into host memory of the caller, without a GPU: tensor i
// of the plan goes to addresses[i]. The plan must have one allocation per tensor.
// Memory that is not there is an error, not a fault. opts may be nil.
func NewHostLoad(p *Plan, addresses []gpu.Addr, opts *LoadOptions) (*Load, error) {
	var o LoadOptions
	if opts != nil {
		o = *opts
	}
	if len(addresses) != len(p.Tensors) {
		return nil, fmt.Errorf("%d addresses for a plan of %d tensors", len(addresses), len(p.Tensors))
	}
	for i, a := range addresses {
		if a == 0 && p.Tensors[i].Len > 0 {
			return nil, fmt.Errorf("tensor %q: address is 0", p.Tensors[i].Name)
		}
	}
	o.host, o.batch, o.depth = addresses, 1, min(runtime.GOMAXPROCS(0), maxHostReads)
	return newLoad(p, hostEngine{}, &o)
}

// A hostEngine reads files into host memory.
type hostEngine struct{}

func (hostEngine) device(int) (gpu.Device, error) { return nil, nil }

func (hostEngine) prepare(int) error { return nil }

func (hostEngine) register(gpu.Span) (io.Closer, error) { return nil, errors.ErrUnsupported }

func (hostEngine) open(path string) (reader, error) {
	if object.IsURL(path) {
		return openHostObject(path)
	}
	f, err := atomicfile.OpenRegular(path)
	return hostReader{f}, err
}

type hostReader struct{ *os.File }

func (hostReader) direct(int) bool { return false }

func (hostReader) start(int64, int64) error { return nil }

// setCache: reads into any memory go through the page cache.
func (f hostReader) setCache(mode route.CacheMode, _ int64) error {
	if mode == route.CacheAvoid {
		return fmt.Errorf("%s: a load into host memory cannot avoid the page cache (fix: load to a GPU, or use cache mode auto): %w", f.Name(), errors.ErrUnsupported)
	}
	return nil
}

func (f hostReader) read(ctx context.Context, segments []segment) (route.Receipt, error) {
	rec, err := readHost(ctx, f, segments)
	rec.Cache.Unasked = rec.Bytes
	return rec, err
}

// readHost reads segments one after the other. The end of the file is no error.
func readHost(ctx context.Context, f io.ReaderAt, segments []segment) (rec route.Receipt, err error) {
	start := time.Now()
	for _, s := range segments {
		if err = ctx.Err(); err != nil {
			break
		}
		var n int
		n, err = f.ReadAt(gpu.HostBytes(s.dst.Addr(), s.dst.Len), s.off)
		rec.Bytes += int64(n)
		if err != nil {
			break
		}
	}
	if err == io.EOF {
		err = nil
	}
	return hostReceipt(rec.Bytes, time.Since(start)), err
}

// hostReceipt describes reads into host memory.
func hostReceipt(n int64, took time.Duration) (rec route.Receipt) {
	rec.Dir, rec.Route, rec.Bytes, rec.Host.Bytes, rec.Time = route.Read, route.Host, n, n, took
	rec.By[route.Host] = n
	return rec
}

// hostSums fills in the sums of stretches in host memory.
func hostSums(ctx context.Context, list []arrival) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range list {
		g.Go(func() error {
			list[i].sum = sumOf(gpu.HostBytes(list[i].span.Addr(), list[i].span.Len))
			return ctx.Err()
		})
	}
	return g.Wait()
}
