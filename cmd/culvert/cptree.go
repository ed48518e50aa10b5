package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/transfer"
)

// runCpTree copies the contents of a directory.
func runCpTree(ctx context.Context, o cpOptions, opts transfer.Options, src, dst string, out io.Writer) error {
	tree, err := transfer.PlanTree(src, dst, o.follow)
	if err != nil {
		return fmt.Errorf("cp %s %s: %w", src, dst, err)
	}
	if err := o.checkReceiptOf(tree); err != nil {
		return err
	}
	if o.dryRun {
		return printCopyPlan(out, o.json, tree)
	}
	_, drv, err := openDriver(opts.GPU)
	if err != nil {
		return err
	}
	defer drv.Close()
	p := newProgress(os.Stderr, tree)
	res, err := tree.Copy(ctx, drv, transfer.TreeOptions{Options: opts, Jobs: o.jobs, Watch: p})
	p.done()
	if err != nil {
		return fmt.Errorf("cp %s %s: %w", src, dst, err)
	}
	if o.json {
		err = writeJSON(out, res)
	} else {
		printTree(out, res)
	}
	if o.receipt != "" {
		if rerr := saveJSON(o.receipt, res); rerr != nil {
			err = errors.Join(err, fmt.Errorf("%s is complete, but not its receipt: %w", dst, rerr))
		}
	}
	return err
}

// checkReceiptOf is checkReceipt for a directory.
func (o *cpOptions) checkReceiptOf(tree *transfer.Tree) error {
	if o.receipt == "" {
		return nil
	}
	for _, f := range tree.Files {
		for _, root := range []string{tree.Source, tree.Dest} {
			if path := filepath.Join(root, f.Path); filepath.Base(path) == filepath.Base(o.receipt) && samePath(path, o.receipt) {
				return o.checkReceipt(path, path)
			}
		}
	}
	return nil
}

func printCopyPlan(out io.Writer, asJSON bool, plan fmt.Stringer) error {
	if asJSON {
		return writeJSON(out, plan)
	}
	_, err := io.WriteString(out, plan.String())
	return err
}

func printTree(out io.Writer, res *transfer.TreeResult) {
	fmt.Fprintln(out, res.Read)
	fmt.Fprintln(out, res.Write)
	for _, s := range res.Skipped {
		fmt.Fprintf(out, "skipped %s: %s\n", human.Name(s.Path), s.Why)
	}
	took := time.Duration(res.Seconds * float64(time.Second))
	fmt.Fprintf(out, "copied %s to %s files=%d bytes=%d links=%d time=%s rate=%s", res.Source, res.Dest, res.Files, res.Bytes, res.Links,
		took.Round(time.Microsecond), human.Rate(float64(res.Bytes)/res.Seconds))
	if res.Done > 0 {
		fmt.Fprintf(out, " done-before=%d", res.Done)
	}
	if res.Verified {
		fmt.Fprint(out, " verified")
	}
	fmt.Fprintln(out)
}

// filePlan is what copying one file amounts to.
type filePlan struct {
	Source  string `json:"source"`
	Dest    string `json:"destination"`
	Size    int64  `json:"bytes"`
	Replace bool   `json:"replace"`
}

func planFile(src, dst string) (*filePlan, error) {
	st, err := os.Stat(src)
	if err != nil {
		return nil, err
	}
	_, err = os.Lstat(dst)
	return &filePlan{src, dst, st.Size(), err == nil}, nil
}

func (p *filePlan) String() string {
	verb := "copy"
	if p.Replace {
		verb = "replace"
	}
	return fmt.Sprintf("%-8s %s -> %s %s\n", verb, p.Source, p.Dest, human.Size(p.Size))
}

// explain says of a command that was stopped how to go on. What a copy of a
// directory has done it need not do again, whatever stopped it.
func explain(ctx context.Context, err error, args []string) string {
	again := commandLine(args)
	if stopped, ok := errors.AsType[*transfer.StoppedError](err); ok {
		if ctx.Err() != nil {
			return fmt.Sprintf("stopped with %d of %d files complete; go on with: %s", stopped.Files, stopped.Of, again)
		}
		return fmt.Sprintf("%v\nthose that are complete are not copied again; go on with: %s", err, again)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "stopped; begin again with: " + again
	}
	return err.Error()
}

// commandLine is a command as a shell takes it.
func commandLine(args []string) string {
	words := []string{"culvert"}
	for _, a := range args {
		if a == "" || strings.Trim(a, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%") != "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
