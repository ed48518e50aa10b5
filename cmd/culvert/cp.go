package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/route"
)

type cpOptions struct {
	via     string
	route   string
	require string
	verify  bool
	json    bool
	receipt string
	// For directories.
	jobs   int
	follow bool
	dryRun bool
}

func newCp() *cobra.Command {
	var o cpOptions
	cmd := &cobra.Command{
		Use:   "cp SOURCE DEST",
		Short: "Copy files and directories through GPU memory",
		Long: `cp reads SOURCE into GPU memory and writes it from there to DEST, by the best
routes that the two files and the GPU have, and prints a receipt for each way.

DEST appears when it is complete and on stable storage: a crash or Ctrl-C leaves
the old file or the new one, and no temporary file. A symbolic link at DEST is
replaced, not followed; a device or a pipe is refused.

If SOURCE is a directory, what is in it goes into the directory DEST, which is
made if it is not there: files, several at a time, directories, and symbolic links
as links. Files that DEST has already are replaced, one by one; what else it has
stays. If the copy is stopped, the same command again goes on with the files that
are missing: ` + transfer.JournalName + ` in DEST says which are not, and goes away at
the end.

EXIT STATUS
  0  all bytes were copied (and verified, with --verify)
  1  an error; the message names the file and the cause
  2  the command line is wrong
  3  the copy would need another route than --route or --require-route allow; DEST
     is as it was`,
		Example: `  culvert cp model.bin copy.bin --via gpu:0 --verify
  culvert cp model.bin copy.bin --route ring --json
  culvert cp model.bin copy.bin --require-route nvfs
  culvert cp model.bin copy.bin --receipt receipt.json
  culvert cp models /mnt/models --dry-run
  culvert cp models /mnt/models --jobs 8 --verify`,
		Args: args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return runCp(cmd.Context(), o, a[0], a[1], cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.via, "via", "gpu:0", "GPU to go through")
	f.StringVar(&o.route, "route", "", "use this route in both directions, or fail")
	f.StringVar(&o.require, "require-route", "", "use this route or better ones for every byte in both directions, or fail")
	f.BoolVar(&o.verify, "verify", false, "read both files again and compare their CRC-32C")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.StringVar(&o.receipt, "receipt", "", "also write the result as JSON to this file")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "print what would be copied, and copy nothing")
	f.IntVar(&o.jobs, "jobs", 4, "files of a directory to copy at a time")
	f.BoolVarP(&o.follow, "follow", "L", false, "in a directory, copy what symbolic links point to")
	return cmd
}

func runCp(ctx context.Context, o cpOptions, src, dst string, out io.Writer) error {
	dev, err := parseGPU(o.via)
	if err != nil {
		return err
	}
	opts := transfer.Options{GPU: dev, Verify: o.verify}
	if err := o.parseRoutes(&opts); err != nil {
		return usageError{err}
	}
	if o.jobs < 1 {
		return usageError{fmt.Errorf("--jobs %d: want 1 at least", o.jobs)}
	}
	if st, err := os.Stat(src); err == nil && st.IsDir() {
		return runCpTree(ctx, o, opts, src, dst, out)
	}
	if st, err := os.Stat(dst); err == nil && st.IsDir() {
		dst = filepath.Join(dst, filepath.Base(src))
	}
	if err := o.checkReceipt(src, dst); err != nil {
		return err
	}
	if o.dryRun {
		plan, err := planFile(src, dst)
		if err != nil {
			return err
		}
		return printCopyPlan(out, o.json, plan)
	}
	_, drv, err := openDriver(dev)
	if err != nil {
		return err
	}
	defer drv.Close()
	meter := newMeter(os.Stderr)
	opts.Advance = meter.advance
	res, err := transfer.Copy(ctx, drv, src, dst, opts)
	meter.done()
	if err != nil {
		return fmt.Errorf("cp %s %s: %w", src, dst, err)
	}
	if o.json {
		err = writeJSON(out, res)
	} else {
		printCp(out, res)
	}
	if o.receipt != "" {
		if rerr := saveJSON(o.receipt, res); rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s is complete, but not its receipt: %w", dst, rerr))
		}
	}
	return err
}

// checkReceipt keeps the receipt from being written over what was copied.
func (o *cpOptions) checkReceipt(src, dst string) error {
	for _, path := range []string{src, dst} {
		if o.receipt != "" && samePath(o.receipt, path) {
			return usageError{fmt.Errorf("--receipt %s: that is %s itself: name another file", o.receipt, path)}
		}
	}
	return nil
}

// samePath reports whether two names are of one file, or would be.
func samePath(a, b string) bool {
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(sa, sb)
	}
	a, errA = filepath.Abs(a)
	b, errB = filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

func (o *cpOptions) parseRoutes(opts *transfer.Options) error {
	if o.route != "" && o.require != "" {
		return errors.New("--route and --require-route: one of them")
	}
	for name, id := range map[string]*route.ID{o.route: &opts.Route, o.require: &opts.Require} {
		if name == "" {
			continue
		}
		var err error
		if *id, err = route.Parse(name); err != nil {
			return err
		}
	}
	return nil
}

func printCp(out io.Writer, res transfer.Result) {
	gpuName := fmt.Sprintf("gpu:%d", res.GPU)
	fmt.Fprint(out, res.Read.Diagram(res.Source, gpuName))
	fmt.Fprint(out, res.Write.Diagram(res.Dest, gpuName))
	fmt.Fprintln(out, res.Read)
	fmt.Fprintln(out, res.Write)
	if res.Verified {
		fmt.Fprintf(out, "verified crc32c=%s\n", res.CRC32C)
	}
}

func saveJSON(path string, v any) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := writeJSON(f, v); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
