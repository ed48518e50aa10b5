package gdstools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
)

// Run measures the job and prints gdsio's line for each request size, and a line
// with the route.
func (j *Job) Run(ctx context.Context, drv *cufile.Driver, soft bool, out io.Writer) error {
	if len(j.Ignored) > 0 {
		fmt.Fprintf(out, "Note: %s accepted and ignored\n", strings.Join(j.Ignored, " "))
	}
	if err := j.prepare(); err != nil {
		return err
	}
	for _, block := range j.Blocks {
		res, err := j.measure(ctx, drv, soft, block)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, j.line(block, res))
		fmt.Fprintln(out, routeLine(res, soft))
	}
	return nil
}

// prepare makes the files of a write as large as they must be.
func (j *Job) prepare() error {
	for _, path := range j.Paths() {
		if !j.Writes() {
			st, err := os.Stat(path)
			if err != nil {
				return fmt.Errorf("%w (fix: write it first: -I 1 -s SIZE)", err)
			}
			j.Size = cmp.Or(j.Size, st.Size())
			if st.Size() < j.Size {
				return fmt.Errorf("%s: the file has %s, less than -s %s (write it first: -I 1)", path, human.Size(st.Size()), human.Size(j.Size))
			}
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o666)
		if err != nil {
			return err
		}
		st, err := f.Stat()
		if err == nil && st.Mode().IsRegular() && st.Size() < j.Size {
			err = f.Truncate(j.Size)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// measure runs one request size on all files at once.
func (j *Job) measure(ctx context.Context, drv *cufile.Driver, soft bool, block int64) ([]*bench.Result, error) {
	paths := j.Paths()
	results := make([]*bench.Result, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	for i, path := range paths {
		g.Go(func() error {
			b, err := j.open(drv, path, soft)
			if err != nil {
				return err
			}
			defer b.Close()
			b.NoCeiling = true // gdsio does not print it
			results[i], err = b.Measure(ctx, j.workload(block), j.method(), "")
			return err
		})
	}
	return results, g.Wait()
}

func (j *Job) open(drv *cufile.Driver, path string, soft bool) (*bench.Bench, error) {
	flags := os.O_RDONLY
	if j.Writes() {
		flags = os.O_RDWR
	}
	if j.Buffered || j.Transfer == 4 {
		return bench.Open(drv, j.GPU, []string{path}, flags, soft)
	}
	b, err := bench.Open(drv, j.GPU, []string{path}, flags|unix.O_DIRECT, soft)
	if errors.Is(err, unix.EINVAL) { // the file system has no O_DIRECT
		return bench.Open(drv, j.GPU, []string{path}, flags, soft)
	}
	return b, err
}

// line is the result as gdsio prints it.
func (j *Job) line(block int64, results []*bench.Result) string {
	var bytes, ops int64
	var seconds, latency float64
	for _, r := range results {
		bytes, ops = bytes+r.Moved, ops+r.Ops
		seconds = max(seconds, r.Seconds)
		latency += r.Latency.Mean * float64(r.Ops)
	}
	total := j.Size * int64(len(results))
	return fmt.Sprintf("IoType: %s XferType: %s Threads: %d DataSetSize: %d/%d(KiB) IOSize: %d(KiB) Throughput: %.6f GiB/sec, Avg_Latency: %.6f usecs ops: %d total_time %.6f secs",
		opNames[j.Operation], transferNames[j.Transfer], j.Threads, bytes>>10, total>>10, block>>10,
		float64(bytes)/seconds/(1<<30), latency/float64(max(ops, 1)), ops, seconds)
}

// routeLine says what NVIDIA's tool does not: how the data really went.
func routeLine(results []*bench.Result, soft bool) string {
	machine := ""
	if soft {
		machine = ", software machine: the figures say nothing about hardware"
	}
	var routes []string
	var host int64
	for _, r := range results {
		if r.Receipt == nil {
			return "Route: none: " + r.Engine + " is not Culvert" + machine
		}
		if name := r.Receipt.Route.String(); !strings.Contains(strings.Join(routes, ","), name) {
			routes = append(routes, name)
		}
		host += r.Receipt.Host.Bytes
	}
	return fmt.Sprintf("Route: %s, %s through host memory%s", strings.Join(routes, ","), human.Size(host), machine)
}
