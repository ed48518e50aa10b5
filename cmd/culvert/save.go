package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/hold"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/tensor"
)

type saveOptions struct {
	part
	via  string
	from string
	user string
	step int64
	keep int
	json bool
}

func newSave() *cobra.Command {
	var o saveOptions
	cmd := &cobra.Command{
		Use:   "save {MODEL | --from SOCK} DEST",
		Short: "Save a model from GPU memory, with checksums",
		Long: `Load MODEL or part of it and save a safetensors file with page-aligned data and a
manifest. --from saves a served model (culvert load --hold); if it has several
ranks, --via selects one.

DEST is replaced atomically once all data is on stable storage: at every moment
the file and its manifest are the old ones or the new ones. Ctrl-C removes the
temporary file; after a kill, the next save into the directory removes it. If DEST
is a symbolic link, the file that it points to is replaced.

With --step, DEST is a directory of checkpoints:
DEST/step-000000100/model.safetensors, and DEST/latest points to the one that was
saved last. culvert ls DEST lists them.

DEST can be an object, s3://BUCKET/KEY: it appears as a whole, after its last byte.
With --step, s3://BUCKET/PREFIX has the checkpoints, and s3://BUCKET/PREFIX/latest
stands for the one that was saved last.

EXIT STATUS
  0  the file and its manifest are on stable storage
  1  an error; the message names the file, the tensor and the cause
  2  invalid command line`,
		Example: `  culvert save /data/llama llama.safetensors
  culvert save /data/llama slice.safetensors --plan tp=4,rank=1
  culvert save model.safetensors /data/run --step 1000 --keep 3
  culvert save --from /run/user/1000/llama.sock llama.safetensors
  culvert save /data/llama s3://models/llama.safetensors
  culvert save model.safetensors s3://models/run --step 1000 --keep 3`,
		Args: args(cobra.RangeArgs(1, 2)),
		PreRunE: func(cmd *cobra.Command, a []string) error {
			if err := o.check(len(a), cmd.Flags().Changed("step")); err != nil {
				return usageError{err}
			}
			return nil
		},
		RunE: run(o.run),
	}
	o.part.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.via, "via", "", "GPU to save from (default gpu:0; with --from, all of the served model)")
	f.StringVar(&o.from, "from", "", "save the model served on this socket")
	f.StringVar(&o.user, "from-user", "", "user whose process may serve it, a name or ID (default you)")
	f.Int64Var(&o.step, "step", -1, "save as this step of a directory of checkpoints")
	f.IntVar(&o.keep, "keep", 0, "steps to keep: those that were saved last (0 = all)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func (o *saveOptions) check(args int, stepSet bool) error {
	switch {
	case stepSet && o.step < 0:
		return fmt.Errorf("--step %d must be at least 0", o.step)
	case o.keep < 0 || o.keep > 0 && o.step < 0:
		return fmt.Errorf("--keep %d must be at least 1 and needs --step", o.keep)
	case o.from == "" && args != 2:
		return errors.New("want MODEL and DEST, or --from SOCK and DEST")
	case o.from != "" && args != 1:
		return errors.New("--from excludes MODEL: want DEST alone")
	case o.from == "" && o.user != "":
		return errors.New("--from-user needs --from")
	case o.from != "" && (o.plan != "" || len(o.rules) > 0):
		return errors.New("--from excludes --plan and --rule, which the load of the served model set")
	}
	return nil
}

func (o *saveOptions) run(ctx context.Context, a []string, out io.Writer) error {
	dest := a[len(a)-1]
	if err := o.checkDest(ctx, dest); err != nil {
		return err
	}
	if o.via == "" && o.from == "" {
		o.via = "gpu:0"
	}
	var devices []int // nil means all of a served model
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
		err = res.saveServed(ctx, o, devices, machineGPUs{mach, drv})
	} else {
		err = res.saveModel(ctx, o, a[0], drv)
	}
	if err != nil {
		return err
	}
	return show(out, o.json, res)
}

// checkDest finds an unusable destination before a model is loaded.
func (o *saveOptions) checkDest(ctx context.Context, dest string) error {
	if object.IsURL(dest) {
		if _, err := object.Parse(dest); err != nil {
			return usageError{err}
		}
	}
	if o.step >= 0 {
		return (&tensor.Checkpoints{Dir: dest}).Free(o.step)
	}
	if object.IsURL(dest) {
		return object.Writable(ctx, dest)
	}
	if _, err := os.Stat(filepath.Dir(dest)); err != nil {
		return fmt.Errorf("save to %s: %w", dest, err)
	}
	if st, err := os.Stat(dest); err == nil && st.IsDir() {
		return fmt.Errorf("save to %s: is a directory (fix: name a file, such as %s)", dest, filepath.Join(dest, "model.safetensors"))
	}
	return nil
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

	Origin route.Origin `json:"origin,omitzero"` // of an object

	mode fs.FileMode // of the new file; 0 is the default
}

func (r saveResult) String() string {
	took := time.Duration(r.Seconds * float64(time.Second))
	text := fmt.Sprintf("saved %s: %s, %s in %s, %s%s\nchecksums in %s", human.Name(r.File), human.Count(r.Tensors, "tensor"), human.Size(r.Bytes),
		human.Duration(took), human.Speed(r.GBps*1e9), human.SoftMark(r.Soft), human.Name(r.Manifest))
	if r.Origin.Store != "" {
		text += "\n" + r.Origin.String()
	}
	if w := r.Origin.Warning(); w != "" {
		text += "\nwarning: " + w
	}
	return text
}

// saveModel loads a model and saves it from the GPU.
func (r *saveResult) saveModel(ctx context.Context, o *saveOptions, src string, drv *cufile.Driver) error {
	m, plan, _, err := o.open(src, o.via, nil)
	if err != nil {
		return err
	}
	l, tensors, err := loadAll(ctx, plan, drv, nil)
	if err != nil {
		return modelError("save", src, err)
	}
	defer l.Close()
	if st, err := os.Stat(src); err == nil && st.Mode().IsRegular() {
		r.mode = st.Mode().Perm() // a private model stays private
	}
	return r.save(ctx, o, tensors, m.Metadata(), drv)
}

// saveServed saves a model that another process serves, or its part on some GPUs.
func (r *saveResult) saveServed(ctx context.Context, o *saveOptions, devices []int, gpus machineGPUs) error {
	wanted, err := tensor.AnyOf(o.only)
	if err != nil {
		return usageError{err}
	}
	uid, err := hold.UserID(o.user)
	if err != nil {
		return usageError{fmt.Errorf("--from-user: %w", err)}
	}
	served, err := hold.AttachFrom(ctx, o.from, uid, gpus)
	if err != nil {
		return err
	}
	defer served.Close()
	tensors := slices.DeleteFunc(served.Tensors, func(t tensor.Tensor) bool {
		return !wanted(t.Name) || devices != nil && !slices.Contains(devices, t.Span.Dev)
	})
	if len(tensors) == 0 {
		return fmt.Errorf("save from %s: no tensor of the served model is selected", o.from)
	}
	on := map[string]int{}
	for _, t := range tensors { // ranks have tensors of the same names
		if dev, ok := on[t.Name]; ok {
			return fmt.Errorf("save from %s: tensor %q is on gpu:%d and gpu:%d, one rank each (fix: save one rank with --via gpu:%d)", o.from, t.Name, dev, t.Span.Dev, dev)
		}
		on[t.Name] = t.Span.Dev
	}
	return r.save(ctx, o, tensors, served.Metadata, gpus.Driver)
}

func (r *saveResult) save(ctx context.Context, o *saveOptions, tensors []tensor.Tensor, metadata map[string]string, drv *cufile.Driver) error {
	meter := human.NewMeter(os.Stderr)
	defer meter.Done()
	opts := &tensor.SaveOptions{Metadata: metadata, Advance: meter.Advance, Mode: r.mode, Origin: &r.Origin}
	var sources []tensor.Source
	for _, t := range tensors {
		dev, err := drv.Device(t.Span.Dev)
		if err != nil {
			return err
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
