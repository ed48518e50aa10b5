package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/tensor"
)

type verifyOptions struct {
	create bool
	json   bool
}

func newVerify() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify MODEL...",
		Short: "Verify models against their checksum manifests",
		Long: `Read the safetensors files of each MODEL and compare them with their manifests
(FILE.culvert.json). All files are checked; errors name the changed bytes and
tensors. MODEL is a file, a shard index, or a directory with one of them, such as
a checkpoint.

Files that another program wrote have no manifest; --create writes one from the
current contents. A model may be saved again meanwhile.

EXIT STATUS
  0  every file matches its manifest (or has one now, with --create)
  1  a file is damaged, has no manifest, or cannot be read
  2  invalid command line`,
		Example: `  culvert verify model.safetensors
  culvert verify /data/run/latest /data/run/step-000001000
  culvert verify --create /data/llama`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: run(o.run),
	}
	f := cmd.Flags()
	f.BoolVar(&o.create, "create", false, "write manifests instead of checking them")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// A verifyResult is the result for one file.
type verifyResult struct {
	File    string          `json:"file"`
	OK      bool            `json:"ok"`
	Bytes   int64           `json:"bytes,omitempty"`
	Tensors int             `json:"tensors,omitempty"`
	Damaged []tensor.Damage `json:"damaged,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func (o *verifyOptions) run(ctx context.Context, models []string, out io.Writer) error {
	results := []verifyResult{}
	var errs []error
	for _, path := range models {
		m, err := tensor.Open(path)
		if err != nil {
			errs = append(errs, err)
			results = append(results, verifyResult{File: object.Redact(path), Error: err.Error()})
			continue
		}
		for _, f := range m.Files {
			res, err := o.verify(ctx, f.Path)
			errs = append(errs, err)
			results = append(results, res)
			if err == nil && !o.json {
				word := "ok"
				if o.create {
					word = "created manifest of"
				}
				fmt.Fprintf(out, "%s %s: %s, %s\n", word, human.Name(res.File), human.Count(res.Tensors, "tensor"), human.Size(res.Bytes))
			}
		}
	}
	if o.json {
		errs = append(errs, writeJSON(out, results))
	}
	return errors.Join(errs...)
}

func (o *verifyOptions) verify(ctx context.Context, path string) (verifyResult, error) {
	res := verifyResult{File: object.Redact(path)}
	var m *tensor.Manifest
	var err error
	if o.create {
		m, err = tensor.CreateManifest(ctx, path)
	} else {
		m, err = tensor.Verify(ctx, path)
	}
	if err != nil {
		res.Error = err.Error()
		if ce, ok := errors.AsType[*tensor.ChecksumError](err); ok {
			res.Damaged = ce.Damaged
		}
		return res, err
	}
	res.OK, res.Bytes, res.Tensors = true, m.Size, len(m.Tensors)
	return res, nil
}
