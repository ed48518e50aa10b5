package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

type benchOptions struct {
	pattern, sizes, threads string
	batch                   int
	async                   bool
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
	json, csv, lines        bool
	html                    string
	compare                 string
	sweep, sweepBlocks      bool // sweepBlocks: --bs was not given
	mix                     int
	mixGiven                bool
	limit                   string
	job                     string
	said                    []string // about routes that were skipped
}

func newBench() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench {FILE... | URL... | --job JOBS} [gpu:N]",
		Short: "Measure transfers between files and a GPU, and compare with other methods",
		Long: `Transfer a file in blocks. Print rate, operations/s, latency percentiles, CPU
seconds per GB, and the fraction of the pinned-copy rate of the same run.

Warm: the file was read before. --cold drops its cached pages and fails if over
1 % remain; sequential cold runs stop at end of file. Peers are other methods,
measured in the same run: NVIDIA's libcufile; pread with a synchronous copy; and
memory, file I/O without the GPU, which shows what is left to gain.

Several files take turns by blocks, so that all get the same load: drives or mounts
together. Each is used up to the size of the smallest. A directory stands for the
files in it that have a block, only for reading.

An object (s3://BUCKET/KEY, https://HOST/PATH) is only read. Of the peers, pread and
memory make one plain request per block.

Calls are synchronous: --threads callers submit --batch requests each, so threads
x batch are in flight; there is no --depth. Peers run a batch sequentially.
With --async a caller enqueues its requests on a CUDA stream of its own and waits
for the stream, which runs them one after the other. Peers do not use streams.

--mix 70 mixes reads and writes, 70 of 100 calls reading, and counts them apart.
--limit-rate 100M moves at most 100 MB (10^6 bytes) a second, all callers together;
the latency of a call does not contain its waiting for the limit.

--job JOBS measures the jobs in a file in fio's syntax, one after the other. Known
options: bs, direct, filename, iodepth (--batch), numjobs (--threads), rate (of each
of numjobs), runtime, rw, rwmixread, size, stonewall, time_based; any other is an error.

--compare FILE compares the rates with those of an earlier run, saved with --json, by
the Mann-Whitney test over the rounds: use --repeat 4 or more for both.

LINK is the fraction of the pinned-copy rate, HOST the bytes through host memory,
CACHED the part of the file in the page cache before the run. Figures of the
software machine are marked: they say nothing about hardware.

EXIT STATUS
  0  all runs were measured
  1  an error
  2  invalid command line
  3  a route of --route is not available`,
		Example: `  culvert bench /data/model.bin gpu:0
  culvert bench /data/model.bin --bs 4K:16M:x4 --threads 1,8 --peer libcufile
  culvert bench /data/model.bin --rw randread --bs 4K --batch 128 --threads 8
  culvert bench /data/model.bin --bs 4K:16M:x4 --threads 1,8 --html report.html
  culvert bench /data/model.bin --sweep --csv > sweep.csv
  culvert bench /mnt/a/model.bin /mnt/b/model.bin gpu:0 --threads 8
  culvert bench s3://models/llama.safetensors --bs 4M --threads 16 --peer memory
  culvert bench /data/model.bin --repeat 8 --json > old.json
  culvert bench /data/model.bin --repeat 8 --compare old.json
  culvert bench /data/scratch.bin --rw write --overwrite --json
  culvert bench /data/scratch.bin --rw randrw --mix 70 --bs 64K --limit-rate 500M --overwrite
  culvert bench --job nightly.fio gpu:0 --html report.html`,
		Args: func(cmd *cobra.Command, a []string) error {
			if cmd.Flags().Changed("job") {
				return args(cobra.MaximumNArgs(1))(cmd, a)
			}
			return args(cobra.MinimumNArgs(1))(cmd, a)
		},
		RunE: run(o.run),
	}
	o.flags(cmd)
	cmd.PreRun = func(cmd *cobra.Command, _ []string) { o.imply(cmd.Flags().Changed) }
	return cmd
}

func (o *benchOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.pattern, "rw", "read", "read, write, randread, randwrite, rw or randrw (mixed)")
	f.StringVar(&o.sizes, "bs", human.ShortSize(benchBlock), "block sizes: 4K, a list 4K,1M, or a range 4K:16M:x4")
	f.StringVar(&o.threads, "threads", "1", "concurrent callers: a number or a list 1,8,16")
	f.IntVar(&o.batch, "batch", 1, "requests per call")
	f.BoolVar(&o.async, "async", false, "enqueue requests on streams, one per caller")
	f.StringVar(&o.mem, "mem", "device", "kind of memory: device, virtual, host or managed")
	f.BoolVar(&o.noRegister, "no-register", false, "use unregistered buffers")
	f.StringVar(&o.routes, "route", "", `routes, comma-separated, or "all" usable ones (default: automatic)`)
	f.StringSliceVar(&o.peers, "peer", nil, "also measure: libcufile, pread (and a copy), memory (no GPU)")
	f.StringVar(&o.libcufile, "libcufile", "", "path of NVIDIA's libcufile.so.0 (default: the usual places)")
	f.BoolVar(&o.cold, "cold", false, "drop the file's page cache before each run")
	f.BoolVar(&o.direct, "direct", false, "open the file with O_DIRECT")
	f.BoolVar(&o.verify, "verify", false, "after each run compare every caller's last call with the file")
	f.BoolVar(&o.overwrite, "overwrite", false, "allow writing to FILE, which destroys its contents")
	f.DurationVar(&o.time, "time", 2*time.Second, "duration of each run")
	f.StringVar(&o.size, "size", "", "bytes per run instead of --time, e.g. 8G")
	f.IntVar(&o.repeat, "repeat", 1, "repetitions of the whole series")
	f.BoolVar(&o.json, "json", false, "print JSON, one object per run and line")
	f.BoolVar(&o.csv, "csv", false, "print comma-separated values")
	f.BoolVar(&o.lines, "lines", false, "print a line of key=value fields per run")
	f.StringVar(&o.html, "html", "", "also write a page with charts to this file")
	f.StringVar(&o.compare, "compare", "", "also compare with the runs in this file, which --json printed")
	f.BoolVar(&o.sweep, "sweep", false, "measure all routes, --bs 4K:16M:x4 (up to the size of the file) and --threads 1,8, unless given")
	f.IntVar(&o.mix, "mix", 50, "percent of reads of mixed reads and writes; means --rw rw unless that is given")
	f.StringVar(&o.limit, "limit-rate", "", "bytes per second of all callers, such as 100M or 2.5G (10^n; default no limit)")
	f.StringVar(&o.job, "job", "", "measure the jobs in this file, which has fio's syntax, instead of FILE")
	for _, flag := range []string{"rw", "bs", "threads", "batch", "direct", "time", "size", "sweep", "mix", "limit-rate"} {
		cmd.MarkFlagsMutuallyExclusive("job", flag)
	}
	cmd.MarkFlagsMutuallyExclusive("json", "csv", "lines", "compare")
}

// imply sets what --mix and --sweep mean and the command line does not say.
func (o *benchOptions) imply(given func(flag string) bool) {
	if given("mix") && !given("rw") {
		o.pattern = string(bench.SeqMixed)
	}
	o.mixGiven = given("mix")
	if !o.sweep {
		return
	}
	o.sweepBlocks = !given("bs")
	for flag, v := range map[string]struct {
		to    *string
		value string
	}{"bs": {&o.sizes, "4K:16M:x4"}, "threads": {&o.threads, "1,8"}, "route": {&o.routes, "all"}} {
		if !given(flag) {
			*v.to = v.value
		}
	}
}

func (o *benchOptions) run(ctx context.Context, a []string, out io.Writer) error {
	files, dev, err := o.splitArgs(a)
	if err != nil {
		return err
	}
	list, err := o.series(files)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkReplaced("--html", o.html, nil), checkMade("--html", o.html, pageMark)); err != nil { // the results would be lost
		return err
	}
	if slices.Contains(o.peers, string(bench.PeerLibcufile)) { // a missing library is an error before any run
		if o.libcufile, err = bench.FindLibcufile(o.libcufile); err != nil {
			return err
		}
	}
	old, err := o.saved()
	if err != nil {
		return err
	}
	m, drv, err := openDriver(dev)
	if err != nil {
		return err
	}
	defer drv.Close()
	m.Accept() // each line of results is marked
	for _, s := range list {
		if err := s.open(ctx, o, drv, dev, m.Soft); err != nil {
			return err
		}
		defer s.b.Close()
	}
	print := &collector{Printer: o.printer(out)}
	if err := o.measureAll(ctx, list, print); err != nil {
		return err
	}
	if old != nil {
		if err := bench.Compare(out, old, print.results); err != nil {
			return err
		}
	}
	if o.html == "" {
		return nil
	}
	return o.writePage(m, fileNames(list), drawings(m, drv, list, dev), dev, print.results)
}

func (o *benchOptions) measureAll(ctx context.Context, list []*benchSeries, print bench.Printer) error {
	for range o.repeat {
		for _, s := range list {
			if err := s.measure(ctx, o, print); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *benchOptions) measure(ctx context.Context, b *bench.Bench, w bench.Workload, m bench.Method, print bench.Printer) error {
	res, err := b.Measure(ctx, w, m, o.libcufile)
	if rejected, ok := errors.AsType[*route.RequireError](err); ok && o.routes == "all" {
		o.skipped(rejected, w.Block)
		return nil
	}
	if err != nil {
		return err
	}
	return print.Print(res)
}

// skipped says once that a route does not move blocks of a size.
func (o *benchOptions) skipped(r *route.RequireError, block int64) {
	text := fmt.Sprintf("route %s skipped for blocks of %s", r.Want, human.Size(block))
	for _, d := range r.Declined {
		text += ": " + d.Evidence
	}
	if !slices.Contains(o.said, text) {
		o.said = append(o.said, text)
		note("%s", text)
	}
}

// splitArgs splits FILE... [gpu:N]. The jobs of --job name their files themselves.
func (o *benchOptions) splitArgs(a []string) (files []string, dev int, err error) {
	if n := len(a) - 1; n >= 0 && strings.HasPrefix(a[n], "gpu:") {
		dev, err = parseGPU(a[n])
		a = a[:n]
	}
	switch {
	case err != nil:
		return nil, 0, err
	case o.job == "" && len(a) == 0:
		return nil, 0, usageError{errors.New("bench: FILE is missing before the GPU (usage: culvert bench FILE... gpu:N)")}
	case o.job != "" && len(a) > 0:
		return nil, 0, usageError{fmt.Errorf("%s: the jobs of --job name their files", a[0])}
	}
	return a, dev, nil
}
