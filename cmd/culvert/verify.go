package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

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
		Short: "Compare models with the checksums that were saved beside them",
		Long: `verify reads the safetensors files of each MODEL and compares them with the
manifests beside them (FILE.culvert.json). It checks all of them before it fails,
and says which bytes of which tensors have changed. MODEL is a file, an index of
shards, or a directory that holds one, such as a checkpoint.

Files that another program wrote have no manifest; --create makes one of what is
there now.

EXIT STATUS
  0  every file is what was saved (or has a manifest now, with --create)
  1  a file is damaged, has no manifest, or cannot be read
  2  the command line is wrong`,
		Example: `  culvert verify model.safetensors
  culvert verify /data/run/latest /data/run/step-000001000
  culvert verify --create /data/llama`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return runVerify(cmd.Context(), o, a, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.create, "create", false, "make manifests instead of checking them")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// A verifyResult is what was found out about one file.
type verifyResult struct {
	File    string          `json:"file"`
	OK      bool            `json:"ok"`
	Bytes   int64           `json:"bytes,omitempty"`
	Tensors int             `json:"tensors,omitempty"`
	Damaged []tensor.Damage `json:"damaged,omitempty"`
	Error   string          `json:"error,omitempty"`
}

func runVerify(ctx context.Context, o verifyOptions, models []string, out io.Writer) error {
	results := []verifyResult{}
	var errs []error
	for _, path := range models {
		m, err := tensor.Open(path)
		if err != nil {
			errs = append(errs, err)
			results = append(results, verifyResult{File: path, Error: err.Error()})
			continue
		}
		for _, f := range m.Files {
			res, err := verifyFile(ctx, o, f.Path)
			errs = append(errs, err)
			results = append(results, res)
			if err == nil && !o.json {
				word := "ok"
				if o.create {
					word = "manifest made for"
				}
				fmt.Fprintf(out, "%s %s bytes=%d tensors=%d\n", word, res.File, res.Bytes, res.Tensors)
			}
		}
	}
	if o.json {
		errs = append(errs, writeJSON(out, results))
	}
	return errors.Join(errs...)
}

func verifyFile(ctx context.Context, o verifyOptions, path string) (verifyResult, error) {
	res := verifyResult{File: path}
	var m *tensor.Manifest
	var err error
	if o.create {
		if m, err = tensor.Describe(ctx, path); err == nil {
			err = tensor.WriteManifest(path, m)
		}
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
