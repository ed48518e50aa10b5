package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/check"
	"github.com/culvert-io/culvert/route"
)

type checkOptions struct {
	json    bool
	require string
}

func newCheck() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [PATH [gpu:N]]",
		Short: "Show available routes, what is missing, and how to fix it",
		Long: `Inspect GPUs, device nodes, modules and limits. With PATH, show the route and,
for each better one, the first failed check and its fix.

EXIT STATUS
  0  the report was printed (and the required route is available)
  1  an error
  2  invalid command line
  3  the best route is worse than --require-route`,
		Example: `  culvert check
  culvert check /data/model.safetensors gpu:0
  culvert check /data/model.safetensors gpu:0 --require-route ring --json`,
		Args: args(cobra.MaximumNArgs(2)),
		RunE: run(o.run),
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	cmd.Flags().StringVar(&o.require, "require-route", "", "exit with status 3 unless the best route is this one or better")
	return cmd
}

func (o *checkOptions) run(_ context.Context, a []string, out io.Writer) error {
	dev, err := gpuArg(a)
	if err != nil {
		return err
	}
	require := route.None
	if o.require != "" {
		if require, err = route.Parse(o.require); err == nil && len(a) == 0 {
			err = errors.New("--require-route needs a PATH")
		}
		if err != nil {
			return usageError{err}
		}
	}
	var gpus []int
	if len(a) > 0 {
		gpus = []int{dev}
	}
	m, drv, err := openDriver(gpus...)
	if err != nil {
		return err
	}
	defer drv.Close()
	r, err := check.Look(m)
	if err == nil && len(a) > 0 {
		r.Path, err = check.LookPath(m, drv, a[0], dev)
	}
	if err == nil {
		err = show(out, o.json, r)
	}
	if err == nil && require != route.None {
		err = r.Path.Require(require)
	}
	return err
}
