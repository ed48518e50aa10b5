package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
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
		Long: `Validate the headers of MODEL and list its tensors in file order. MODEL is a
safetensors file, a shard index (*.index.json), or a directory with one of them; or
their URL. Of a directory of checkpoints (culvert save --step), list the steps.

EXIT STATUS
  0  the model is valid
  1  invalid or unreadable model; the error names file, tensor and rule
  2  invalid command line`,
		Example: `  culvert ls model.safetensors
  culvert ls /data/llama --only '*.layers.0.*'
  culvert ls /data/llama --json
  culvert ls s3://models/run`,
		Args: args(cobra.ExactArgs(1)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.only, "only", nil, "list tensors whose name matches this pattern (may be repeated)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

type lsTensor struct {
	tensor.Info
	File string `json:"file"`
}

// A lsResult is what ls prints.
type lsResult struct {
	Model    string            `json:"model"`
	Files    []string          `json:"files"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []lsTensor        `json:"tensors"`
	Bytes    int64             `json:"bytes"`
	Unlisted []string          `json:"unlisted,omitempty"`
}

func (o *lsOptions) run(ctx context.Context, a []string, out io.Writer) error {
	m, err := tensor.Open(a[0])
	if errors.Is(err, fs.ErrNotExist) {
		steps, serr := (&tensor.Checkpoints{Dir: a[0]}).Steps(ctx)
		if cause := context.Cause(ctx); cause != nil {
			return cause // what was not found may be there
		}
		if serr == nil && len(steps) > 0 {
			return show(out, o.json, lsSteps{object.Redact(a[0]), steps})
		}
	}
	if err != nil {
		return err
	}
	wanted, err := tensor.AnyOf(o.only)
	if err != nil {
		return usageError{err}
	}
	res := &lsResult{Model: object.Redact(a[0]), Metadata: map[string]string{}, Tensors: []lsTensor{}, Unlisted: m.Unlisted}
	maps.Copy(res.Metadata, m.Metadata())
	for _, f := range m.Files {
		res.Files = append(res.Files, object.Redact(f.Path))
	}
	for _, info := range m.Tensors {
		if wanted(info.Name) {
			res.Tensors = append(res.Tensors, lsTensor{info, object.Redact(m.Files[info.File].Path)})
			res.Bytes += info.Len
		}
	}
	if n := len(m.Unlisted); n > 0 && !o.json {
		note("note: %d tensors of the files are not in the index, %q first", n, m.Unlisted[0])
	}
	return show(out, o.json, res)
}

// A lsSteps is what ls prints of checkpoints, in the order in which they were saved.
type lsSteps struct {
	Checkpoints string        `json:"checkpoints"`
	Steps       []tensor.Step `json:"steps"`
}

func (res lsSteps) String() string {
	var b strings.Builder
	w := human.Table(&b)
	for i, s := range res.Steps {
		fmt.Fprintf(w, "%d\t%s\t%s", s.Number, human.Size(s.Bytes), s.Saved.UTC().Format(time.DateTime))
		if i == len(res.Steps)-1 {
			fmt.Fprint(w, "\tlatest")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "steps: %d, in %s", len(res.Steps), human.Name(res.Checkpoints))
	return b.String()
}

func (res *lsResult) String() string {
	var b strings.Builder
	w := human.Table(&b)
	for _, t := range res.Tensors {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", human.Name(t.Name), t.Dtype, strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ","), human.Size(t.Len))
		if len(res.Files) > 1 {
			fmt.Fprintf(w, "\t%s", human.Name(filepath.Base(t.File)))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	fmt.Fprintf(&b, "tensors: %d, %s, files: %d", len(res.Tensors), human.Size(res.Bytes), len(res.Files))
	return b.String()
}
