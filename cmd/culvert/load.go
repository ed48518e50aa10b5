package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/phase"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/tensor"
)

type loadOptions struct {
	part
	order   string
	window  string
	hold    string
	cache   string
	require string
	verify  bool
	ceiling bool
	dryRun  bool
	verbose bool
	json    bool
}

func newLoad() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load MODEL [gpu:N[,gpu:N...]]",
		Short: "Load a model into GPU memory and measure it",
		Long: `Load tensors to their final GPU address. Report time to first and last tensor,
rate, and route per file. Memory is freed at exit.

With --hold, serve the model on a Unix socket to processes of the same user and of
root, which map it without copying (culvert.attach, culvert save --from). Ctrl-C
stops serving; attached processes keep the memory. On the software machine clients
copy it from one file in memory.

--plan selects a part of the model: tp=4,rank=1 is one of four tensor-parallel
slices, pp=2,stage=0 the first half of the layers, ep=8,eprank=3 an eighth of the
experts; layers=0-16 and experts=0-8 select by number. Several GPUs and no rank:
each loads one rank. dp=4: four GPUs get the same. No --plan: they split the layers.
What several GPUs get is read once and copied from GPU to GPU.

Known names are split as in Megatron-LM; --rule sets the split for others:
'*.c_fc.weight=1' by dimension 1, '*.qkv.weight=0/3' each of three blocks along
dimension 0, '*.k_proj.*=whole' not at all.

--verify checks tensors against the manifests; slices have no checksum. The report
counts verified tensors.

EXIT STATUS
  0  all tensors were loaded, and with --verify no difference was found
  1  an error; the message names the file, the tensor and the cause
  2  invalid command line
  3  --require-route cannot be met`,
		Example: `  culvert load model.safetensors gpu:0
  culvert load /data/llama gpu:0 --plan tp=4,rank=1 --dry-run
  culvert load /data/llama gpu:0,gpu:1 --plan tp=2 --order layer --verify
  culvert load /data/llama gpu:0,gpu:1,gpu:2,gpu:3 --plan dp=4
  culvert load /data/huge gpu:0 --window 4G --json
  culvert load /data/llama gpu:0 --trace load.json # open it in ui.perfetto.dev
  culvert load /data/llama gpu:0 --hold /run/user/1000/llama.sock`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	o.part.flags(cmd)
	f.StringVar(&o.order, "order", "file", "file (fastest) or layer (first layers first)")
	f.StringVar(&o.window, "window", "", "stream through this much memory per GPU, e.g. 4G")
	f.StringVar(&o.hold, "hold", "", "serve the model on this socket")
	f.StringVar(&o.cache, "cache", "auto", "page cache: auto (keep the files if they fit), keep or avoid")
	f.StringVar(&o.require, "require-route", "", "use this route or better ones for every byte, or fail")
	f.BoolVar(&o.verify, "verify", false, "check tensors against the manifests")
	f.BoolVar(&o.ceiling, "ceiling", false, "also measure a pinned copy, and print the fraction of its rate")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "print the plan and load nothing")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also print the receipts with every field and, on standard error, when each phase began")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *loadOptions) parse() (*tensor.PlanOptions, *tensor.LoadOptions, error) {
	plan, load := &tensor.PlanOptions{}, &tensor.LoadOptions{Verify: o.verify}
	switch o.order {
	case "file":
	case "layer":
		plan.ByLayer = true
	default:
		return nil, nil, fmt.Errorf("--order %s: want file or layer", o.order)
	}
	var err error
	if load.Cache, err = route.ParseCacheMode(o.cache); err != nil {
		return nil, nil, fmt.Errorf("--cache: %w", err)
	}
	if o.require != "" {
		if load.Require, err = route.Parse(o.require); err != nil {
			return nil, nil, fmt.Errorf("--require-route: %w", err)
		}
	}
	if o.window != "" {
		n, err := human.ParseSize(o.window)
		if err != nil || n == 0 {
			return nil, nil, fmt.Errorf("--window %s: want a size such as 512M or 4G", o.window)
		}
		plan.PerTensor, plan.Apart, load.Window = true, true, uint64(n)
	}
	if o.hold != "" {
		if o.window != "" || o.dryRun {
			return nil, nil, errors.New("--hold excludes --window and --dry-run")
		}
		load.Kind = gpu.KindVirtual // can be shared with other processes
	}
	return plan, load, nil
}

func (o *loadOptions) run(ctx context.Context, a []string, out io.Writer) error {
	path, gpus := a[0], "gpu:0"
	if len(a) > 1 {
		gpus = a[1]
	}
	planOpts, loadOpts, err := o.parse()
	if err != nil {
		return usageError{err}
	}
	if o.verbose {
		phase.To(os.Stderr)
		defer phase.To(nil)
	}
	end := phase.Begin("read headers")
	m, plan, devices, err := o.open(path, gpus, planOpts)
	end()
	if err != nil {
		return err
	}
	if o.dryRun {
		return show(out, o.json, plan)
	}
	end = phase.Begin("open driver")
	mach, drv, err := openDriver(devices...)
	end()
	if err != nil {
		return err
	}
	defer drv.Close()
	var listener *hold.Listener
	if o.hold != "" { // before loading: a socket in use is an error at once, and early clients wait
		if listener, err = hold.Listen(ctx, o.hold); err != nil {
			return err
		}
		defer listener.Close()
	}
	res := loadResult{Model: object.Redact(path), GPUs: plan.Devices(), Soft: mach.Soft, Hold: o.hold, verify: o.verify}
	if o.ceiling {
		if res.Ceiling, err = pinnedCopyRates(drv, res.GPUs); err != nil {
			return err
		}
	}
	l, tensors, err := loadAll(ctx, plan, drv, loadOpts)
	if errors.Is(err, gpu.ErrOutOfMemory) {
		err = fmt.Errorf("%w (fix: load a part with --plan or --only, use several GPUs, or stream with --window)", err)
	}
	if err != nil {
		return modelError("load", object.Redact(path), err)
	}
	defer l.Close()
	res.report(l.Report(), tensors)
	if err := showTransfer(out, o.json, o.verbose, &res); err != nil || listener == nil {
		return err
	}
	if o.json {
		out = os.Stderr // standard output has only JSON
	}
	model := &hold.Model{Name: m.Path, Metadata: m.Metadata(), Tensors: tensors}
	return serve(ctx, listener, model, machineGPUs{mach, drv}, out)
}

// serve shares the model with other processes until the command is stopped.
func serve(ctx context.Context, listener *hold.Listener, m *hold.Model, gpus machineGPUs, out io.Writer) error {
	share := hold.ByDescriptor
	if s, ok := soft.Of(gpus.mach.GPU); ok && !s.Shared() {
		share = hold.ByCopy // no other process can use its memory
	}
	s, err := hold.NewServer(m, gpus, share)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(out, "holding %s share=%s pid=%d (Ctrl-C ends it)\n", listener.Addr(), share, os.Getpid())
	if err := s.Serve(ctx, listener); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	fmt.Fprintf(out, "released %s attached=%d\n", listener.Addr(), s.Served())
	return nil
}

// pinnedCopyRates returns the sum of the GPUs' pinned-copy rates, in GB/s.
func pinnedCopyRates(drv *cufile.Driver, gpus []int) (sum float64, err error) {
	for _, i := range gpus {
		dev, err := drv.Device(i)
		if err != nil {
			return 0, err
		}
		rate, err := bench.PinnedCopyRate(dev, false)
		if err != nil {
			return 0, err
		}
		_ = drv.KeepCeiling(dev, route.Read, rate)
		sum += rate / 1e9
	}
	return sum, nil
}

// A loadResult is what load prints.
type loadResult struct {
	Model    string              `json:"model"`
	GPUs     []int               `json:"gpus"`
	Tensors  int                 `json:"tensors"`
	Verified int                 `json:"verified"`
	Wanted   int64               `json:"wanted_bytes"`
	Bytes    int64               `json:"read_bytes"`
	Copied   int64               `json:"copied_bytes,omitempty"` // from GPU to GPU
	First    float64             `json:"first_tensor_seconds"`
	Last     float64             `json:"last_tensor_seconds"`
	GBps     float64             `json:"gb_per_second"`
	Ceiling  float64             `json:"ceiling_gb_per_second,omitempty"`
	Share    float64             `json:"share_of_ceiling,omitempty"`
	Soft     bool                `json:"software_machine"`
	Hold     string              `json:"hold,omitempty"`
	Files    []tensor.FileReport `json:"files"`

	verify bool
}

func (r *loadResult) report(rep tensor.Report, tensors []tensor.Tensor) {
	for _, t := range tensors {
		if t.Verified {
			r.Verified++
		}
	}
	r.Tensors, r.Wanted, r.Bytes, r.Copied, r.Files = rep.Tensors, rep.Wanted, rep.Bytes, rep.Copied, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
	if r.Ceiling > 0 {
		r.Share = r.GBps / r.Ceiling
	}
}

// String says what was loaded and how fast, and which way the bytes of the files went.
func (r *loadResult) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "loaded %s: %d tensors, %s", human.Name(baseName(r.Model)), r.Tensors, human.Size(r.Wanted))
	switch {
	case r.Copied > 0:
		fmt.Fprintf(&b, " (read %s, %s copied from GPU to GPU)", human.Size(r.Bytes), human.Size(r.Copied))
	case r.Bytes != r.Wanted:
		fmt.Fprintf(&b, " (read %s)", human.Size(r.Bytes))
	}
	fmt.Fprintf(&b, " in %s, %s", seconds(r.Last), human.Speed(r.GBps*1e9))
	if r.Ceiling > 0 {
		fmt.Fprintf(&b, " (%.0f %% of the link's %s)", 100*r.Share, human.Speed(r.Ceiling*1e9))
	}
	fmt.Fprintf(&b, ", the first after %s", seconds(r.First))
	if r.verify {
		fmt.Fprintf(&b, ", %d verified", r.Verified)
	}
	b.WriteString(human.SoftMark(r.Soft))
	advice := ""
	for way, files := range r.byWay() {
		name := human.Name(baseName(files[0].Path))
		if len(files) > 1 {
			name = fmt.Sprintf("%d files", len(files))
		}
		fmt.Fprintf(&b, "\n%s: %s", name, way)
		advice = cmp.Or(advice, files[0].Receipt.Advice())
	}
	if advice != "" {
		b.WriteString("\n" + advice)
	}
	return b.String()
}

// byWay groups the files by the way that their bytes went, in the order of the files.
func (r *loadResult) byWay() iter.Seq2[string, []tensor.FileReport] {
	groups := map[string][]tensor.FileReport{}
	var order []string
	for _, f := range r.Files {
		way := f.Receipt.Way()
		if groups[way] == nil {
			order = append(order, way)
		}
		groups[way] = append(groups[way], f)
	}
	return func(yield func(string, []tensor.FileReport) bool) {
		for _, way := range order {
			if !yield(way, groups[way]) {
				return
			}
		}
	}
}

// Fields is the receipt of each file with every field.
func (r *loadResult) Fields() string {
	lines := make([]string, len(r.Files))
	for i := range r.Files {
		lines[i] = fmt.Sprintf("%s: %s", human.Name(baseName(r.Files[i].Path)), &r.Files[i].Receipt)
	}
	return strings.Join(lines, "\n")
}

func seconds(s float64) string { return human.Duration(time.Duration(s * float64(time.Second))) }
