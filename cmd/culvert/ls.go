package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/tensor"
)

type lsOptions struct {
	only []string
	json bool
}

func newLs() *cobra.Command {
	var o lsOptions
	cmd := &cobra.Command{
		Use:   "ls MODEL",
		Short: "List the tensors of a model",
		Long: `ls reads the headers of a model, checks them strictly, and lists the tensors in
the order in which they lie in the files. MODEL is a safetensors file, an index
of shards (*.index.json), or a directory that holds one.

EXIT STATUS
  0  the model is well formed
  1  it is not, or cannot be read; the message names file, tensor and rule
  2  the command line is wrong`,
		Example: `  culvert ls model.safetensors
  culvert ls /data/llama --only '*.layers.0.*'
  culvert ls /data/llama --json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return runLs(o, a[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.only, "only", nil, "list tensors whose name matches this pattern (may be repeated)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// A lsTensor is a line of the list.
type lsTensor struct {
	tensor.Info
	File string `json:"file"`
}

// A lsResult is what ls prints as JSON.
type lsResult struct {
	Model    string            `json:"model"`
	Files    []string          `json:"files"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []lsTensor        `json:"tensors"`
	Bytes    int64             `json:"bytes"`
	Unlisted []string          `json:"unlisted,omitempty"`
}

func runLs(o lsOptions, path string, out, errs io.Writer) error {
	m, err := tensor.Open(path)
	if err != nil {
		return err
	}
	wanted, err := tensor.AnyOf(o.only)
	if err != nil {
		return usageError{err}
	}
	res := lsResult{Model: path, Metadata: map[string]string{}, Tensors: []lsTensor{}, Unlisted: m.Unlisted}
	for _, f := range m.Files {
		res.Files = append(res.Files, f.Path)
		for k, v := range f.Metadata {
			res.Metadata[k] = v
		}
	}
	for _, e := range m.Entries() {
		if wanted(e.Name) {
			res.Tensors = append(res.Tensors, lsTensor{e.Info, m.Files[e.File].Path})
			res.Bytes += e.Len
		}
	}
	if o.json {
		return writeJSON(out, res)
	}
	printLs(out, res)
	if n := len(m.Unlisted); n > 0 {
		fmt.Fprintf(errs, "culvert: %d tensors in the files are not in the index and no part of the model, %q first\n", n, m.Unlisted[0])
	}
	return nil
}

func printLs(out io.Writer, res lsResult) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, t := range res.Tensors {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", human.Name(t.Name), t.Dtype, shape(t.Shape), human.Size(t.Len))
		if len(res.Files) > 1 {
			fmt.Fprintf(w, "\t%s", filepath.Base(t.File))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(out, "tensors: %d, %s, files: %d\n", len(res.Tensors), human.Size(res.Bytes), len(res.Files))
}

func shape(dims []int64) string {
	return strings.ReplaceAll(fmt.Sprint(dims), " ", ",")
}
