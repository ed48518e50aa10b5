package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

type benchOptions struct {
	pattern, sizes, threads string
	batch                   int
	mem                     string
	noRegister              bool
	routes                  string
	peers                   []string
	libcufile               string
	cold, direct, overwrite bool
	verify                  bool
	time                    time.Duration
	size                    string
	repeat                  int
	json                    bool
}

func newBench() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench FILE [gpu:N]",
		Short: "Measure transfers between a file and a GPU, beside peers and the ceiling",
		Long: `bench measures blocks of a file going into GPU memory or out of it and prints one
line per run: rate, operations per second, percentiles, CPU seconds per GB, and
the share of the ceiling, which is a large pinned copy measured in the same run.

Warm means that the file was read once before; with --cold its pages are dropped
first, a run whose file is still in the page cache is refused, and one that goes
through the file in order ends at its end. Peers are measured in the same run:
NVIDIA's libcufile, loaded by path; pread with a synchronous copy; and memory,
which reads or writes host memory alone and shows what is left to gain.

There is no --depth, because calls wait for what they ask for: each of --threads
callers hands over --batch requests with one call, so that up to threads x batch
are under way. Peers do the requests of a batch one after the other.

On the software machine every line ends with SOFTWARE-MACHINE: such figures say
nothing about hardware.

EXIT STATUS
  0  all runs were measured
  1  an error
  2  the command line is wrong
  3  a route asked for with --route is not available here`,
		Example: `  culvert bench /data/model.bin gpu:0
  culvert bench /data/model.bin --bs 4K:16M:x4 --threads 1,8 --peer libcufile
  culvert bench /data/model.bin --rw randread --bs 4K --batch 128 --threads 8
  culvert bench /data/scratch.bin --rw write --overwrite --json`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return runBench(cmd.Context(), o, a, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.pattern, "rw", "read", "read, write, randread or randwrite")
	f.StringVar(&o.sizes, "bs", "1M", "block sizes: 4K, a list 4K,1M, or a range 4K:16M:x4")
	f.StringVar(&o.threads, "threads", "1", "callers: a number or a list 1,8,16")
	f.IntVar(&o.batch, "batch", 1, "requests per call: the depth of each caller")
	f.StringVar(&o.mem, "mem", "device", "kind of memory: device, virtual, host or managed")
	f.BoolVar(&o.noRegister, "no-register", false, "use unregistered buffers")
	f.StringVar(&o.routes, "route", "", "a route, a list, or all that the file can use; empty lets the ladder choose")
	f.StringSliceVar(&o.peers, "peer", nil, "also measure: libcufile, pread (and a copy), memory (no GPU)")
	f.StringVar(&o.libcufile, "libcufile", "", "path of NVIDIA's libcufile.so.0 (default: the usual places)")
	f.BoolVar(&o.cold, "cold", false, "drop the file's page cache before each run")
	f.BoolVar(&o.direct, "direct", false, "open the file with O_DIRECT")
	f.BoolVar(&o.verify, "verify", false, "after each run compare every caller's last call with the file, byte for byte")
	f.BoolVar(&o.overwrite, "overwrite", false, "allow writing over FILE, which destroys its contents")
	f.DurationVar(&o.time, "time", 2*time.Second, "time of each run")
	f.StringVar(&o.size, "size", "", "move so many bytes per run instead, e.g. 8G")
	f.IntVar(&o.repeat, "repeat", 1, "repeat the whole series")
	f.BoolVar(&o.json, "json", false, "print JSON, one object per run and line")
	return cmd
}

// A benchRun is one engine with one workload.
type benchRun struct {
	w    bench.Workload
	only route.ID
	peer bench.Peer
}

func runBench(ctx context.Context, o benchOptions, a []string, out io.Writer) error {
	dev := 0
	if len(a) > 1 {
		var err error
		if dev, err = parseGPU(a[1]); err != nil {
			return err
		}
	}
	workloads, err := o.workloads()
	if err != nil {
		return usageError{err}
	}
	if workloads[0].Pattern.Writes() && !o.overwrite {
		return usageError{fmt.Errorf("--rw %s destroys the contents of %s: say --overwrite if that is wanted", o.pattern, a[0])}
	}
	for _, p := range o.peers {
		if err := bench.Peer(p).Check(); err != nil {
			return usageError{err}
		}
		if err := bench.Peer(p).Find(&o.libcufile); err != nil {
			return err
		}
	}
	m, drv, err := openDriver(dev)
	if err != nil {
		return err
	}
	defer drv.Close()
	b, err := bench.Open(drv, dev, a[0], o.openFlags(), m.Soft)
	if err != nil {
		return err
	}
	defer b.Close()
	if !o.cold {
		if err := b.Warm(); err != nil {
			return err
		}
	}
	routes, err := o.routeList(b)
	if err != nil {
		return err
	}
	for range o.repeat {
		for _, r := range o.runs(workloads, routes) {
			err := runOne(ctx, b, r, o, out)
			if refused, ok := errors.AsType[*route.RequireError](err); ok && o.routes == "all" {
				fmt.Fprintf(os.Stderr, "culvert: route %s left out for blocks of %s: %v\n", refused.Want, human.Size(r.w.Block), refused.Declined)
				continue
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func runOne(ctx context.Context, b *bench.Bench, r benchRun, o benchOptions, out io.Writer) error {
	var res *bench.Result
	var err error
	if r.peer != "" {
		res, err = b.Peer(ctx, r.w, r.peer, o.libcufile)
	} else {
		res, err = b.Culvert(ctx, r.w, r.only)
	}
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(res)
	}
	fmt.Fprintln(out, res)
	return nil
}

func (o benchOptions) openFlags() int {
	flags := os.O_RDONLY
	if o.overwrite {
		flags = os.O_RDWR
	}
	if o.direct {
		flags |= unix.O_DIRECT
	}
	return flags
}

var benchKinds = map[string]gpu.Kind{"device": gpu.KindDevice, "virtual": gpu.KindVirtual, "host": gpu.KindHost, "managed": gpu.KindManaged}

func (o benchOptions) workloads() ([]bench.Workload, error) {
	pattern, err := bench.ParsePattern(o.pattern)
	if err != nil {
		return nil, err
	}
	blocks, err := human.ParseSizes(o.sizes)
	if err != nil {
		return nil, err
	}
	threads, err := human.ParseSizes(o.threads)
	if err != nil {
		return nil, fmt.Errorf("--threads %s: want numbers from 1 on", o.threads)
	}
	kind, ok := benchKinds[o.mem]
	if !ok {
		return nil, fmt.Errorf("no kind of memory %q: want device, virtual, host or managed", o.mem)
	}
	if o.time <= 0 {
		return nil, fmt.Errorf("--time %v: want some time", o.time)
	}
	if o.batch < 1 || o.repeat < 1 {
		return nil, errors.New("--batch and --repeat begin at 1")
	}
	w := bench.Workload{Pattern: pattern, Batch: o.batch, Kind: kind, Register: !o.noRegister && kind != gpu.KindManaged, Cold: o.cold, Verify: o.verify, Time: o.time}
	if o.size != "" {
		if w.Bytes, err = human.ParseSize(o.size); err != nil {
			return nil, err
		}
		if least := slices.Max(blocks) * int64(o.batch); w.Bytes < least {
			return nil, fmt.Errorf("--size %s: less than one call, which moves %s", o.size, human.Size(least))
		}
		w.Time = 0
	}
	var list []bench.Workload
	for _, w.Block = range blocks {
		for _, n := range threads {
			if n > 1024 {
				return nil, fmt.Errorf("%d threads are more than 1024", n)
			}
			w.Threads = int(n)
			list = append(list, w)
		}
	}
	return list, nil
}

// routeList is the routes to measure one by one; None is the ladder's choice.
func (o benchOptions) routeList(b *bench.Bench) ([]route.ID, error) {
	switch o.routes {
	case "":
		return []route.ID{route.None}, nil
	case "all":
		return b.Routes()
	}
	var list []route.ID
	for _, name := range strings.Split(o.routes, ",") {
		id, err := route.Parse(name)
		if err != nil {
			return nil, usageError{err}
		}
		list = append(list, id)
	}
	return list, nil
}

// runs puts engines that are to be compared next to each other.
func (o benchOptions) runs(workloads []bench.Workload, routes []route.ID) []benchRun {
	var list []benchRun
	for _, w := range workloads {
		for _, id := range routes {
			list = append(list, benchRun{w: w, only: id})
		}
		for _, p := range o.peers {
			list = append(list, benchRun{w: w, peer: bench.Peer(p)})
		}
	}
	return list
}
