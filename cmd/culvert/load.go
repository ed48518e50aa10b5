package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
that do not share its GPUs (culvert run) copy it from one file in memory.

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
	o.flags(cmd)
	return cmd
}

func (o *loadOptions) flags(cmd *cobra.Command) {
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
		return show(out, o.json, withoutSecrets(plan))
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
	l, tensors, err := o.load(ctx, plan, drv, loadOpts, &res)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := showTransfer(out, o.json, o.verbose, &res); err != nil || listener == nil {
		return err
	}
	if o.json {
		out = os.Stderr // standard output has only JSON
	}
	model := &hold.Model{Name: object.Redact(m.Path), Metadata: m.Metadata(), Tensors: tensors}
	return serve(ctx, listener, model, machineGPUs{mach, drv}, out)
}

// withoutSecrets is a plan to be printed.
func withoutSecrets(p *tensor.Plan) *tensor.Plan {
	shown := *p
	shown.Model, shown.Files = object.Redact(p.Model), slices.Clone(p.Files)
	for i, file := range shown.Files {
		shown.Files[i] = object.Redact(file)
	}
	return &shown
}

// load loads the tensors and completes the result.
func (o *loadOptions) load(ctx context.Context, plan *tensor.Plan, drv *cufile.Driver, opts *tensor.LoadOptions, res *loadResult) (l *tensor.Load, tensors []tensor.Tensor, err error) {
	if o.ceiling {
		if res.Ceiling, err = pinnedCopyRates(drv, res.GPUs); err != nil {
			return nil, nil, err
		}
	}
	l, tensors, err = loadAll(ctx, plan, drv, opts)
	if errors.Is(err, gpu.ErrOutOfMemory) {
		err = fmt.Errorf("%w (fix: load a part with --plan or --only, use several GPUs, or stream with --window)", err)
	}
	if err != nil {
		return nil, nil, modelError("load", res.Model, err)
	}
	res.report(l.Report(), tensors)
	return l, tensors, nil
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
