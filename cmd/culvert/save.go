package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/tensor"
)

type saveOptions struct {
	part
	via  string
	from string
	step int64
	keep int
	json bool
}

func newSave() *cobra.Command {
	var o saveOptions
	cmd := &cobra.Command{
		Use:   "save {MODEL | --from SOCK} DEST",
		Short: "Save a model from GPU memory, with checksums",
		Long: `save loads MODEL, or a part of it, into GPU memory and saves it from there into
one safetensors file that starts its data on a page border, with a manifest of
checksums beside it. With --from it saves a model that another process holds
(culvert load --hold), without loading anything. Of ranks that are held on several
GPUs --via names the one to save.

DEST appears when it is complete and on stable storage: a crash or Ctrl-C leaves
the old file or the new one, and no temporary file. A symbolic link at DEST is
followed: the file that it leads to is replaced. With --step, DEST is a
directory of checkpoints: DEST/step-000000100/model.safetensors, and DEST/latest
points to the newest.

EXIT STATUS
  0  the file and its manifest are on stable storage
  1  an error; the message names the file, the tensor and the cause
  2  the command line is wrong`,
		Example: `  culvert save /data/llama llama.safetensors
  culvert save /data/llama slice.safetensors --plan tp=4,rank=1
  culvert save model.safetensors /data/run --step 1000 --keep 3
  culvert save --from /run/user/1000/llama.sock llama.safetensors`,
		Args: args(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if cmd.Flags().Changed("step") && o.step < 0 {
				return usageError{fmt.Errorf("--step %d: want a number from 0", o.step)}
			}
			if o.keep < 0 || (o.keep > 0 && o.step < 0) {
				return usageError{fmt.Errorf("--keep %d: want a number from 1, with --step", o.keep)}
			}
			if err := o.check(len(a)); err != nil {
				return usageError{err}
			}
			return runSave(cmd.Context(), o, a, cmd.OutOrStdout())
		},
	}
	o.part.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.via, "via", "", "GPU to save from (default gpu:0, with --from all that it holds)")
	f.StringVar(&o.from, "from", "", "save the model that is held at this socket")
	f.Int64Var(&o.step, "step", -1, "save as this step of a directory of checkpoints")
	f.IntVar(&o.keep, "keep", 0, "keep so many of the newest steps, 0 for all")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// A saveResult is what save prints.
type saveResult struct {
	File     string  `json:"file"`
	Manifest string  `json:"manifest"`
	Tensors  int     `json:"tensors"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	GBps     float64 `json:"gb_per_second"`
	Soft     bool    `json:"software_machine"`
}

// check holds the arguments to what --from leaves to say.
func (o *saveOptions) check(n int) error {
	switch {
	case o.from == "" && n != 2:
		return errors.New("want MODEL and DEST, or --from SOCK and DEST")
	case o.from != "" && n != 1:
		return errors.New("--from names what is saved: want DEST alone")
	case o.from != "" && (o.plan != "" || len(o.rules) > 0):
		return errors.New("a held model is saved as it lies: --plan and --rule go with its load")
	}
	return nil
}

func runSave(ctx context.Context, o saveOptions, a []string, out io.Writer) error {
	dest := a[len(a)-1]
	if err := o.writable(dest); err != nil {
		return err
	}
	if o.via == "" && o.from == "" {
		o.via = "gpu:0"
	}
	var devices []int // of a held model nil means all
	if o.via != "" {
		var err error
		if devices, err = parseGPUs(o.via); err != nil {
			return err
		}
	}
	mach, drv, err := openDriver(devices...)
	if err != nil {
		return err
	}
	defer drv.Close()
	res := saveResult{File: dest, Soft: mach.Soft}
	if o.from != "" {
		err = res.saveHeld(ctx, o, devices, seenGPUs{mach, drv})
	} else {
		err = res.saveModel(ctx, o, a[0], drv)
	}
	if err != nil {
		return err
	}
	if o.json {
		return writeJSON(out, res)
	}
	fmt.Fprintf(out, "saved %s tensors=%d bytes=%d time=%s rate=%s manifest=%s", res.File, res.Tensors, res.Bytes,
		time.Duration(res.Seconds*float64(time.Second)).Round(time.Microsecond), human.Rate(res.GBps*1e9), res.Manifest)
	if res.Soft {
		fmt.Fprint(out, " SOFTWARE-MACHINE")
	}
	fmt.Fprintln(out)
	return nil
}

// writable finds a destination that will not do before a model is loaded for it.
func (o *saveOptions) writable(dest string) error {
	if o.step >= 0 {
		return (&tensor.Checkpoints{Dir: dest}).Free(o.step)
	}
	if _, err := os.Stat(filepath.Dir(dest)); err != nil {
		return fmt.Errorf("save to %s: %w", dest, err)
	}
	return nil
}

// saveModel loads a model and saves it from the GPU.
func (r *saveResult) saveModel(ctx context.Context, o saveOptions, src string, drv *cufile.Driver) error {
	targets, err := o.targets(o.via)
	if err != nil {
		return err
	}
	m, err := tensor.Open(src)
	if err != nil {
		return err
	}
	plan, err := tensor.NewPlan(m, targets, nil)
	if err != nil {
		return err
	}
	warnUncut(os.Stderr, targets, plan)
	l, err := tensor.NewLoad(plan, drv, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	tensors, err := all(ctx, l, plan.Totals().Read)
	if err != nil {
		return about("save", src, err)
	}
	return r.save(ctx, o, tensors, metadata(m), drv)
}

// all is what a load brings, of so many bytes.
func all(ctx context.Context, l *tensor.Load, total int64) (tensors []tensor.Tensor, err error) {
	meter := newMeter(os.Stderr)
	defer meter.done()
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return nil, err
		}
		tensors = append(tensors, *t)
		meter.advance(l.Progress(), total)
	}
	return tensors, nil
}

// saveHeld saves a model that another process holds, or what of it is on some GPUs.
func (r *saveResult) saveHeld(ctx context.Context, o saveOptions, devices []int, gpus seenGPUs) error {
	wanted, err := tensor.AnyOf(o.only)
	if err != nil {
		return usageError{err}
	}
	held, err := hold.Attach(ctx, o.from, gpus)
	if err != nil {
		return err
	}
	defer held.Close()
	tensors := slices.DeleteFunc(held.Tensors, func(t tensor.Tensor) bool {
		return !wanted(t.Name) || devices != nil && !slices.Contains(devices, t.Span.Dev)
	})
	if len(tensors) == 0 {
		return fmt.Errorf("no tensor of the model that %s holds is selected", o.from)
	}
	if err := apart(tensors); err != nil {
		return fmt.Errorf("save what %s holds: %w", o.from, err)
	}
	return r.save(ctx, o, tensors, held.Metadata, gpus.Driver)
}

// apart refuses ranks of one model: their tensors have the same names, and one file
// holds a name once.
func apart(tensors []tensor.Tensor) error {
	on := map[string]int{}
	for _, t := range tensors {
		if dev, ok := on[t.Name]; ok {
			return fmt.Errorf("%q is on gpu:%d and on gpu:%d, a rank on each: save one, with --via gpu:%d", t.Name, dev, t.Span.Dev, dev)
		}
		on[t.Name] = t.Span.Dev
	}
	return nil
}

func (r *saveResult) save(ctx context.Context, o saveOptions, tensors []tensor.Tensor, metadata map[string]string, drv *cufile.Driver) error {
	meter := newMeter(os.Stderr)
	defer meter.done()
	opts := &tensor.SaveOptions{Metadata: metadata, Advance: meter.advance}
	var sources []tensor.Source
	for _, t := range tensors {
		dev, err := drv.Device(t.Span.Dev)
		if err != nil {
			return err
		}
		if opts.Buffer == nil {
			opts.Buffer = func(n int) ([]byte, func(), error) { return pinned(dev, n) }
		}
		sources = append(sources, tensor.Source{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape, Data: tensor.DeviceBytes(dev, t.Span)})
	}
	start := time.Now()
	var m *tensor.Manifest
	var err error
	if o.step >= 0 {
		c := &tensor.Checkpoints{Dir: r.File, Keep: o.keep}
		m, err = c.Save(ctx, o.step, sources, opts)
		r.File = c.Path(o.step)
	} else {
		m, err = tensor.Save(ctx, r.File, sources, opts)
	}
	if err != nil {
		return err
	}
	r.Manifest = tensor.ManifestPath(r.File)
	r.Tensors, r.Bytes, r.Seconds = len(m.Tensors), m.Size, time.Since(start).Seconds()
	r.GBps = float64(r.Bytes) / r.Seconds / 1e9
	return nil
}

// pinned allocates host memory that a GPU copies to at full speed.
func pinned(dev gpu.Device, n int) ([]byte, func(), error) {
	a, err := dev.Alloc(gpu.KindHost, uint64(n), 0)
	if err != nil {
		return nil, nil, err
	}
	return gpu.HostBytes(a, uint64(n)), func() { dev.Free(a) }, nil
}
