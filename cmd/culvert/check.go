package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/check"
	"github.com/culvert-io/culvert/internal/human"
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
		Short: "Tell what this machine can do, what it lacks, and the fix",
		Long: `check looks at the GPUs, device nodes, kernel modules and limits of this machine.
With a file (and a GPU) it tells which route their bytes would take, and for each
better route the first test that it failed and what would change that.

EXIT STATUS
  0  the report was made (and the required route is there)
  1  an error
  2  the command line is wrong
  3  the best route is worse than --require-route`,
		Example: `  culvert check
  culvert check /data/model.safetensors gpu:0
  culvert check /data/model.safetensors gpu:0 --require-route ring --json`,
		Args: args(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error { return runCheck(o, a, cmd.OutOrStdout()) },
	}
	cmd.Flags().BoolVar(&o.json, "json", false, "print the report as JSON")
	cmd.Flags().StringVar(&o.require, "require-route", "", "exit with status 3 unless the best route is this one or better")
	return cmd
}

func runCheck(o checkOptions, a []string, out io.Writer) error {
	dev, require, err := checkArgs(o, a)
	if err != nil {
		return err
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
	if err != nil {
		return err
	}
	if len(a) > 0 {
		if r.Path, err = check.LookPath(m, drv, a[0], dev); err != nil {
			return err
		}
	}
	if o.json {
		err = writeJSON(out, r)
	} else {
		printReport(out, r)
	}
	if err == nil && require != route.None {
		err = r.Path.Require(require)
	}
	return err
}

func checkArgs(o checkOptions, a []string) (dev int, require route.ID, err error) {
	if len(a) > 1 {
		if dev, err = parseGPU(a[1]); err != nil {
			return 0, 0, err
		}
	}
	if o.require != "" {
		if require, err = route.Parse(o.require); err != nil {
			return 0, 0, usageError{err}
		}
		if len(a) == 0 {
			return 0, 0, usageError{fmt.Errorf("--require-route needs a PATH")}
		}
	}
	return dev, require, nil
}

func printReport(out io.Writer, r *check.Report) {
	fmt.Fprintf(out, "machine  %s (%s)\n", r.Machine.Kind, r.Machine.Why)
	fmt.Fprintf(out, "driver   %s, CUDA %s\nkernel   %s\n", r.Machine.Driver, r.Machine.Version, r.Kernel)
	for _, g := range r.GPUs {
		printGPU(out, g)
	}
	printMissing(out, r)
	if r.Path != nil {
		printPath(out, r.Path)
	}
}

func printGPU(out io.Writer, g check.GPU) {
	fmt.Fprintf(out, "\ngpu:%d    %s  %s  %s  %s of memory, %s free\n", g.Index, g.Name, g.PCI, g.UUID,
		human.Size(int64(g.Memory)), human.Size(int64(g.Free)))
	if g.Err != "" {
		fmt.Fprintf(out, "         error: %s\n", g.Err)
	}
	for _, a := range g.Attributes {
		value := fmt.Sprint(a.Value)
		if !a.Known {
			value = "not known to this driver"
		}
		fmt.Fprintf(out, "         %-45s %s\n", a.Name, value)
	}
}

func printMissing(out io.Writer, r *check.Report) {
	fmt.Fprintln(out, "\nnodes")
	for _, n := range r.Nodes {
		printNode(out, n)
	}
	fmt.Fprintln(out, "modules")
	for _, m := range r.Modules {
		state, tail := "loaded", m.Detail
		if !m.Loaded {
			state, tail = "missing", m.Note+fixText(m.Fix)
		}
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("         %-24s %-8s %s  %s", m.Name, state, m.For, tail), " "))
	}
	fmt.Fprintln(out, "limits")
	for _, l := range r.Limits {
		line := strings.TrimRight(fmt.Sprintf("         %-32s %-8s %s  %s", l.Name, l.Value, l.Note, fixText(l.Fix)), " ")
		fmt.Fprintln(out, line)
	}
}

func printNode(out io.Writer, n check.Node) {
	state, tail := "missing", n.Note+fixText(n.Fix)
	switch {
	case n.Usable && n.Version != "":
		state, tail = "ok", "version "+n.Version
	case n.Usable:
		state = "ok"
	case n.Present:
		state = n.Err
	}
	fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("         %-24s %-8s %s  %s", n.Path, state, n.For, tail), " "))
}

func fixText(fix string) string {
	if fix == "" {
		return ""
	}
	return "fix: " + fix
}

func printPath(out io.Writer, p *check.Path) {
	fmt.Fprintf(out, "\n%s <-> gpu:%d\n", p.File, p.GPU)
	fmt.Fprintf(out, "         size %s on %s", human.Size(p.Size), p.Facts.FS)
	if p.Mount != nil {
		fmt.Fprintf(out, " at %s (%s)", p.Mount.Point, p.Mount.Source)
	}
	if p.Device != nil {
		fmt.Fprintf(out, ", block device %s by %s", p.Device.Name, orUnknown(p.Device.Driver))
	}
	fmt.Fprintln(out)
	if p.Resident != nil {
		fmt.Fprintf(out, "         in the page cache: %s\n", human.Size(*p.Resident))
	}
	d := p.Facts.Direct
	fmt.Fprintf(out, "         O_DIRECT: %v, offset alignment %d, memory alignment %d (%s)\n", d.Supported, d.OffAlign, d.MemAlign, d.Source)
	for i, u := range p.Uses {
		label, scope := "route", u.For
		if i > 0 {
			label = ""
		}
		if scope == "" && i > 0 {
			scope = "everything else"
		}
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%-8s %-8s %s", label, u.Route, scope), " "))
	}
	for _, d := range p.Declined {
		fmt.Fprintf(out, "         not %s\n", d)
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "an unknown driver"
	}
	return s
}
