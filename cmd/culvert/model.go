package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/machine"
	_ "github.com/culvert-io/culvert/object" // s3:// and https://
	"github.com/culvert-io/culvert/tensor"
)

// A part selects a part of a model on the command line.
type part struct {
	plan  string
	only  []string
	rules []string
}

func (p *part) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.plan, "plan", "", "part of the model, such as tp=4,rank=1")
	f.StringArrayVar(&p.only, "only", nil, "tensors whose name matches this pattern (may be repeated)")
	f.StringArrayVar(&p.rules, "rule", nil, "split for tensor parallelism: PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole (may be repeated)")
}

// open opens a model and plans the load of the part. It returns the GPUs named.
func (p *part) open(path, gpus string, opts *tensor.PlanOptions) (*tensor.Model, *tensor.Plan, []int, error) {
	parts, devices, err := p.selections(gpus)
	if err != nil {
		return nil, nil, nil, usageError{err}
	}
	if err := notSocket(path); err != nil {
		return nil, nil, nil, err
	}
	m, err := tensor.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := tensor.NewPlan(m, parts, opts)
	if err != nil {
		return nil, nil, nil, err
	}
	split := slices.ContainsFunc(plan.Tensors, func(t tensor.Placed) bool { return t.Whole != nil })
	if !split && slices.ContainsFunc(parts, func(s tensor.Selection) bool { return s.Tensor.Of > 1 }) {
		note("note: tp splits no tensor of this model, so every rank gets all of them (fix: --rule sets the split for names that are not known)")
	}
	return m, plan, devices, nil
}

// notSocket rejects the socket of a served model.
func notSocket(path string) error {
	if st, err := os.Stat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		return fmt.Errorf("%s is the socket of a held model (fix: culvert save --from %s DEST)", path, path)
	}
	return nil
}

// selections returns what goes to each GPU, and the GPUs.
func (p *part) selections(gpus string) ([]tensor.Selection, []int, error) {
	devices, err := parseGPUs(gpus)
	if err != nil {
		return nil, nil, err
	}
	sel, err := tensor.ParseSelection(p.plan, p.rules...)
	if err != nil {
		return nil, nil, err
	}
	sel.Only = p.only
	parts, err := sel.Spread(devices)
	return parts, devices, err
}

// loadAll runs a load and returns its tensors, whose memory belongs to the load.
func loadAll(ctx context.Context, p *tensor.Plan, drv *cufile.Driver, opts *tensor.LoadOptions) (*tensor.Load, []tensor.Tensor, error) {
	l, err := tensor.NewLoad(p, drv, opts)
	if err != nil {
		return nil, nil, err
	}
	meter := human.NewMeter(os.Stderr)
	defer meter.Done()
	totals := p.Totals()
	var tensors []tensor.Tensor
	for t, err := range l.Tensors(ctx) {
		if err != nil {
			return nil, nil, errors.Join(err, l.Close())
		}
		tensors = append(tensors, *t)
		meter.Advance(l.Progress(), totals.Read+totals.Copied)
	}
	return l, tensors, nil
}

// modelError adds operation and path to an error, unless it starts with the path
// of a file there.
func modelError(op, path string, err error) error {
	path = object.Redact(path)
	if rest, ok := strings.CutPrefix(err.Error(), path); ok && strings.IndexAny(rest, ":/") == 0 {
		return fmt.Errorf("%s: %w", op, err)
	}
	return fmt.Errorf("%s %s: %w", op, path, err)
}

// baseName is the last part of a path or a URL.
func baseName(path string) string {
	if object.IsURL(path) {
		return object.Base(path)
	}
	return filepath.Base(path)
}

// machineGPUs are the GPUs of the machine, opened through cuFile.
type machineGPUs struct {
	mach *machine.Machine
	*cufile.Driver
}

func (g machineGPUs) Devices() ([]gpu.Info, error) { return g.mach.GPU.Devices() }
