package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/route"
)

type nvmeBenchOptions struct {
	size, via string
	depth     int
	nsid      uint32
	time      time.Duration
	write     bool
	force     bool
	json      bool
}

func newNVMeBench() *cobra.Command {
	var o nvmeBenchOptions
	cmd := &cobra.Command{
		Use:   "bench DRIVE",
		Short: "Measure random I/O at a fixed queue depth",
		Long: `Measure random I/O at a fixed queue depth. Print rate, commands/s and latency
percentiles.

` + nvmeDrives,
		Example: `  culvert nvme bench soft:disk.img --bs 4K --depth 32
  culvert nvme bench vfio:0000:01:00.0 --bs 128K --via gpu:0 --time 10s`,
		Args: args(cobra.ExactArgs(1)),
		RunE: run(func(ctx context.Context, a []string, out io.Writer) error {
			if o.write && !o.force {
				return usageError{fmt.Errorf("--write overwrites %s: use --force to confirm", a[0])}
			}
			return onDrive(a[0], o.via, func(d *drive) error { return runNVMeBench(ctx, d, o, out) })
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.size, "bs", "4K", "bytes per command")
	f.IntVar(&o.depth, "depth", 32, "commands in flight")
	f.StringVar(&o.via, "via", "host", viaUsage)
	f.Uint32Var(&o.nsid, "nsid", 1, "namespace")
	f.DurationVar(&o.time, "time", 2*time.Second, "duration of the run")
	f.BoolVar(&o.write, "write", false, "write instead of reading")
	f.BoolVar(&o.force, "force", false, "allow --write, which overwrites the drive")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// A nvmeBenchResult is what a run measured.
type nvmeBenchResult struct {
	Drive     string          `json:"drive"`
	Via       string          `json:"via"`
	Op        string          `json:"op"`
	Size      int64           `json:"bytes_per_command"`
	Depth     int             `json:"depth"`
	Commands  int             `json:"commands"`
	Seconds   float64         `json:"seconds"`
	GBps      float64         `json:"gb_per_second"`
	IOPS      float64         `json:"ops_per_second"`
	P50       float64         `json:"p50_us"`
	P99       float64         `json:"p99_us"`
	HostBytes route.ByteCount `json:"host_bytes"`
	Soft      bool            `json:"software_drive"`
}

func (r nvmeBenchResult) String() string {
	s := fmt.Sprintf("nvme %s %s via=%s bs=%s depth=%d %s iops=%.0f p50=%.0fus p99=%.0fus host_bytes=%s",
		r.Op, r.Drive, r.Via, human.Size(r.Size), r.Depth, human.Rate(r.GBps*1e9), r.IOPS, r.P50, r.P99, count(r.HostBytes))
	if r.Soft {
		s += " SOFTWARE-DRIVE"
	}
	return s
}

func runNVMeBench(ctx context.Context, d *drive, o nvmeBenchOptions, out io.Writer) error {
	if o.write && d.readOnly != nil {
		return d.readOnly
	}
	sizes, err := human.ParseSizes(o.size)
	switch {
	case err != nil:
		return usageError{fmt.Errorf("--bs %s: %w", o.size, err)}
	case len(sizes) != 1:
		return usageError{fmt.Errorf("--bs %s: want one size", o.size)}
	case o.time <= 0:
		return usageError{fmt.Errorf("--time %v must be positive", o.time)}
	}
	ns, err := d.namespace(o.nsid)
	if err != nil {
		return err
	}
	size := sizes[0]
	switch bs := int64(ns.BlockSize()); {
	case size%bs != 0 || size > int64(d.c.Info().MaxTransfer):
		return usageError{fmt.Errorf("--bs %s must be a multiple of %d, at most %d", o.size, bs, d.c.Info().MaxTransfer)}
	case uint64(size/bs) > ns.Blocks():
		return usageError{fmt.Errorf("--bs %s exceeds the namespace of %d blocks of %d bytes", o.size, ns.Blocks(), bs)}
	}
	q, err := d.c.NewQueue(o.depth)
	if err != nil {
		return usageError{err}
	}
	buf, err := d.buffer(uint64(q.Depth()) * uint64(size))
	if err != nil {
		return err
	}
	b := &nvmeBench{q: q, ns: ns, size: size, rnd: rand.New(rand.NewPCG(1, 1)), hist: hdrhistogram.New(1, int64(time.Minute), 3)}
	b.op = nvme.OpRead
	if o.write {
		b.op = nvme.OpWrite
	}
	before := d.hostBytes()
	seconds, err := b.run(ctx, buf, o.time)
	if err != nil {
		return err
	}
	rate := float64(b.ended) / seconds
	res := nvmeBenchResult{
		Drive: d.name, Via: d.via, Op: b.op.String(), Size: size, Depth: q.Depth(), Commands: b.ended, Seconds: seconds,
		GBps: rate * float64(size) / 1e9, IOPS: rate,
		P50: float64(b.hist.ValueAtQuantile(50)) / 1e3, P99: float64(b.hist.ValueAtQuantile(99)) / 1e3,
		HostBytes: d.through(uint64(b.ended)*uint64(size), before), Soft: strings.HasPrefix(d.name, "soft:"),
	}
	return show(out, o.json, res)
}

// A nvmeBench keeps a queue full.
type nvmeBench struct {
	q     *nvme.Queue
	ns    *nvme.Namespace
	op    nvme.Op
	size  int64
	rnd   *rand.Rand
	hist  *hdrhistogram.Histogram
	ended int
}

// run returns its duration in seconds.
func (b *nvmeBench) run(ctx context.Context, buf *nvme.Buffer, limit time.Duration) (float64, error) {
	depth := b.q.Depth()
	blocks := uint32(b.size / int64(b.ns.BlockSize()))
	reqs, free, done := make([]nvme.Request, depth), make([]*nvme.Request, depth), make([]*nvme.Request, depth)
	began := make(map[*nvme.Request]time.Time, depth)
	for i := range reqs {
		reqs[i].Op, reqs[i].NS, reqs[i].Blocks, reqs[i].Buf, reqs[i].Off = b.op, b.ns, blocks, buf, uint64(i)*uint64(b.size)
		free[i] = &reqs[i]
	}
	start := time.Now()
	for inFlight := 0; ; {
		now := time.Now()
		if now.Sub(start) < limit && ctx.Err() == nil {
			for _, r := range free {
				r.LBA = uint64(blocks) * b.rnd.Uint64N(b.ns.Blocks()/uint64(blocks))
				began[r] = now
			}
			n, err := b.q.Submit(free...)
			if n < len(free) {
				return 0, err
			}
			inFlight += n
			free = free[:0]
		}
		if inFlight == 0 {
			return time.Since(start).Seconds(), ctx.Err()
		}
		// Without ctx: wait for all commands in flight.
		n, err := b.q.Reap(context.Background(), done)
		if err != nil {
			return 0, err
		}
		now = time.Now()
		for _, r := range done[:n] {
			if r.Err() != nil {
				return 0, r.Err()
			}
			if err := b.hist.RecordValue(max(1, min(int64(now.Sub(began[r])), int64(time.Minute)))); err != nil {
				return 0, err
			}
		}
		inFlight -= n
		b.ended += n
		free = append(free, done[:n]...)
	}
}
