package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

type loadOptions struct {
	part
	order   string
	window  string
	hold    string
	verify  bool
	ceiling bool
	dryRun  bool
	json    bool
}

// A part of a model, as the command line names it.
type part struct {
	plan  string
	only  []string
	rules []string
}

func newLoad() *cobra.Command {
	var o loadOptions
	cmd := &cobra.Command{
		Use:   "load MODEL [gpu:N[,gpu:N...]]",
		Short: "Load a model into GPU memory and measure it",
		Long: `load reads the tensors of a model into GPU memory, each to the place where it
stays, and reports how long the first and the last took, the rate, and the route
of each file. The memory is freed when it ends.

With --hold it stays and hands the tensors to other processes of the same user,
through a socket, as descriptors of the memory they lie in: culvert.attach(SOCK)
in Python and culvert save --from SOCK have them without reading or copying.
Ctrl-C ends it; who is attached keeps the memory. The memory of the software
machine belongs to one process: there each client gets a copy.

--plan takes a part of the model: tp=4,rank=1 is one of four tensor-parallel
slices, pp=2,stage=0 the first half of the layers, ep=8,eprank=3 an eighth of the
experts; layers=0-16 and experts=0-8 name them by number. With several GPUs and
no rank each GPU gets its own; without a plan they share the layers.

Tensor parallelism cuts the usual names as Megatron-LM does. --rule says how to
cut others: '*.c_fc.weight=1' by dimension 1, '*.qkv.weight=0/3' each of three
blocks along dimension 0, '*.k_proj.*=whole' not at all.

--verify compares what arrived with the manifest beside each file. A slice of a
tensor has no checksum of its own; the report says how many tensors were verified.

EXIT STATUS
  0  all tensors were loaded, and with --verify no difference was found
  1  an error; the message names the file, the tensor and the cause
  2  the command line is wrong`,
		Example: `  culvert load model.safetensors gpu:0
  culvert load /data/llama gpu:0 --plan tp=4,rank=1 --dry-run
  culvert load /data/llama gpu:0,gpu:1 --plan tp=2 --order layer --verify
  culvert load /data/huge gpu:0 --window 4G --json
  culvert load /data/llama gpu:0 --hold /run/user/1000/llama.sock`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			gpus := "gpu:0"
			if len(a) > 1 {
				gpus = a[1]
			}
			return runLoad(cmd.Context(), o, a[0], gpus, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	o.part.flags(cmd)
	f.StringVar(&o.order, "order", "file", "file: as the bytes lie, for speed; layer: the first layers first")
	f.StringVar(&o.window, "window", "", "stream through so much memory of each GPU, e.g. 4G, instead of keeping all")
	f.StringVar(&o.hold, "hold", "", "stay, and hand the tensors to processes that connect to this socket")
	f.BoolVar(&o.verify, "verify", false, "compare what arrived with the manifests beside the files")
	f.BoolVar(&o.ceiling, "ceiling", false, "also measure a pinned copy, and print the share of it")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "print the plan and load nothing")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (p *part) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.plan, "plan", "", "part of the model: tp=4,rank=1 and the like")
	f.StringArrayVar(&p.only, "only", nil, "take tensors whose name matches this pattern (may be repeated)")
	f.StringArrayVar(&p.rules, "rule", nil, "how tensor parallelism cuts: PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole (may be repeated)")
}

// targets reads the devices and what goes to each.
func (p *part) targets(gpus string) ([]tensor.Target, error) {
	devices, err := parseGPUs(gpus)
	if err != nil {
		return nil, err
	}
	sel, err := tensor.ParseSelection(p.plan)
	if err != nil {
		return nil, usageError{err}
	}
	sel.Only = p.only
	for _, r := range p.rules {
		rule, err := tensor.ParseSplitRule(r)
		if err != nil {
			return nil, usageError{err}
		}
		sel.Rules = append(sel.Rules, rule)
	}
	targets, err := tensor.Spread(sel, devices)
	if err != nil {
		return nil, usageError{err}
	}
	return targets, nil
}

// warnUncut says that tensor parallelism was asked for and cut nothing: the names
// are not those that the rules know, and every rank would get everything.
func warnUncut(w io.Writer, targets []tensor.Target, plan *tensor.Plan) {
	wanted := slices.ContainsFunc(targets, func(t tensor.Target) bool { return t.Tensor.Of > 1 })
	cut := slices.ContainsFunc(plan.Tensors, func(t tensor.Placed) bool { return t.Whole != nil })
	if wanted && !cut {
		fmt.Fprintln(w, "culvert: note: tp cuts none of these tensors, so every rank gets them whole; --rule says how to cut names that are not the usual ones")
	}
}

func devices(targets []tensor.Target) []int {
	var list []int
	for _, t := range targets {
		list = append(list, t.Device)
	}
	return list
}

// options are the plan's and the load's.
func (o *loadOptions) options() (*tensor.PlanOptions, *tensor.LoadOptions, error) {
	plan, load := &tensor.PlanOptions{}, &tensor.LoadOptions{Verify: o.verify}
	switch o.order {
	case "file":
	case "layer":
		plan.Order = tensor.ByLayer
	default:
		return nil, nil, usageError{fmt.Errorf("--order %s: want file or layer", o.order)}
	}
	if o.window != "" {
		n, err := human.ParseSize(o.window)
		if err != nil || n <= 0 {
			return nil, nil, usageError{fmt.Errorf("--window %s: want a size such as 512M or 4G", o.window)}
		}
		plan.Alloc, load.Window = tensor.PerTensor, uint64(n)
	}
	if o.hold != "" {
		if o.window != "" || o.dryRun {
			return nil, nil, usageError{errors.New("--hold keeps all tensors: it goes with neither --window nor --dry-run")}
		}
		load.Kind = gpu.KindVirtual // what can be handed to others
	}
	return plan, load, nil
}

// A loadResult is what load prints.
type loadResult struct {
	Model    string              `json:"model"`
	GPUs     []int               `json:"gpus"`
	Tensors  int                 `json:"tensors"`
	Verified int                 `json:"verified"`
	Wanted   int64               `json:"wanted_bytes"`
	Bytes    int64               `json:"read_bytes"`
	First    float64             `json:"first_tensor_seconds"`
	Last     float64             `json:"last_tensor_seconds"`
	GBps     float64             `json:"gb_per_second"`
	Ceiling  float64             `json:"ceiling_gb_per_second,omitempty"`
	Share    float64             `json:"share_of_ceiling,omitempty"`
	Soft     bool                `json:"software_machine"`
	Hold     string              `json:"hold,omitempty"`
	Files    []tensor.FileReport `json:"files"`
}

func runLoad(ctx context.Context, o loadOptions, path, gpus string, out io.Writer) error {
	targets, err := o.targets(gpus)
	if err != nil {
		return err
	}
	planOpts, loadOpts, err := o.options()
	if err != nil {
		return err
	}
	m, err := tensor.Open(path)
	if err != nil {
		return err
	}
	plan, err := tensor.NewPlan(m, targets, planOpts)
	if err != nil {
		return err
	}
	warnUncut(os.Stderr, targets, plan)
	if o.dryRun {
		return printPlan(out, plan, o.json)
	}
	mach, drv, err := openDriver(devices(targets)...)
	if err != nil {
		return err
	}
	defer drv.Close()
	held, err := newHolder(o.hold, m, mach, drv)
	if err != nil {
		return err
	}
	defer held.close()
	res := loadResult{Model: path, GPUs: plan.Devices(), Soft: mach.Soft, Hold: o.hold}
	if o.ceiling {
		if res.Ceiling, err = ceilings(drv, res.GPUs); err != nil {
			return err
		}
	}
	l, err := res.load(ctx, plan, held, loadOpts)
	if errors.Is(err, gpu.ErrOutOfMemory) {
		err = fmt.Errorf("%w (--plan and --only take a part of the model, several GPUs share it, --window streams it through)", err)
	}
	if err != nil {
		return about("load", path, err)
	}
	defer l.Close()
	if err := res.print(out, o); err != nil || held.listener == nil {
		return err
	}
	if o.json {
		out = os.Stderr // after the JSON nothing else
	}
	return held.serve(ctx, out)
}

// about is the error of an operation on a path, which begins with that path where it
// is about a file there.
func about(op, path string, err error) error {
	if rest, ok := strings.CutPrefix(err.Error(), path); ok && strings.IndexAny(rest, ":/") == 0 {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}

func (r *loadResult) print(out io.Writer, o loadOptions) error {
	if o.json {
		return writeJSON(out, r)
	}
	printLoad(out, r, o.verify)
	return nil
}

func printPlan(out io.Writer, p *tensor.Plan, asJSON bool) error {
	if asJSON {
		return writeJSON(out, p)
	}
	_, err := p.WriteTo(out)
	return err
}

// ceilings is the sum of the GPUs' pinned copies, in GB/s.
func ceilings(drv *cufile.Driver, gpus []int) (sum float64, err error) {
	for _, i := range gpus {
		dev, err := drv.Device(i)
		if err != nil {
			return 0, err
		}
		c, err := bench.Ceiling(dev, false)
		if err != nil {
			return 0, err
		}
		_ = drv.KeepCeiling(dev, route.Read, c)
		sum += c / 1e9
	}
	return sum, nil
}

// load loads everything, and keeps in held what is to be held.
func (r *loadResult) load(ctx context.Context, p *tensor.Plan, held *holder, opts *tensor.LoadOptions) (*tensor.Load, error) {
	l, err := tensor.NewLoad(p, held.gpus.Driver, opts)
	if err != nil {
		return nil, err
	}
	meter := newMeter(os.Stderr)
	defer meter.done()
	total := p.Totals().Read
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		if t.Verified {
			r.Verified++
		}
		held.keep(t)
		meter.advance(l.Progress(), total)
	}
	rep := l.Report()
	r.Tensors, r.Wanted, r.Bytes, r.Files = rep.Tensors, rep.Wanted, rep.Bytes, rep.Files
	r.First, r.Last, r.GBps = rep.First.Seconds(), rep.Last.Seconds(), rep.Rate()/1e9
	if r.Ceiling > 0 {
		r.Share = r.GBps / r.Ceiling
	}
	return l, nil
}

func printLoad(out io.Writer, r *loadResult, verify bool) {
	seconds := func(s float64) time.Duration {
		return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
	}
	fmt.Fprintf(out, "loaded %s tensors=%d bytes=%d read=%d first=%s last=%s rate=%s",
		filepath.Base(r.Model), r.Tensors, r.Wanted, r.Bytes, seconds(r.First), seconds(r.Last), human.Rate(r.GBps*1e9))
	if r.Ceiling > 0 {
		fmt.Fprintf(out, " ceiling=%s share=%.2f", human.Rate(r.Ceiling*1e9), r.Share)
	}
	if verify {
		fmt.Fprintf(out, " verified=%d", r.Verified)
	}
	if r.Soft {
		fmt.Fprint(out, " SOFTWARE-MACHINE")
	}
	fmt.Fprintln(out)
	for i := range r.Files {
		fmt.Fprintf(out, "%s: %s\n", filepath.Base(r.Files[i].Path), &r.Files[i].Receipt)
	}
}
