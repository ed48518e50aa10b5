package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
)

// An objectCopy copies an object to a file, or into GPU memory and no further.
type objectCopy struct {
	Source string `json:"source"`
	Dest   string `json:"destination"`
	GPU    bool   `json:"gpu"` // Dest is a GPU
}

// planObject plans a copy of which one end is an object; ok is false if none is.
func planObject(src, dst string) (job copyJob, ok bool, err error) {
	if !object.IsURL(src) && !object.IsURL(dst) {
		return nil, false, nil
	}
	if object.IsURL(dst) {
		return nil, true, usageError{errors.New("DEST must be a file or a GPU")}
	}
	if _, err := object.Parse(src); err != nil {
		return nil, true, usageError{err}
	}
	c := &objectCopy{Source: src, Dest: dst, GPU: strings.HasPrefix(dst, "gpu:")}
	if st, err := os.Stat(dst); !c.GPU && err == nil && st.IsDir() {
		c.Dest = filepath.Join(dst, object.Base(src))
	}
	return c, true, nil
}

func (c *objectCopy) String() string {
	return fmt.Sprintf("%-8s %s -> %s", "copy", human.Name(object.Redact(c.Source)), human.Name(c.Dest))
}

func (c *objectCopy) paths() []string {
	if c.GPU {
		return nil
	}
	return []string{c.Dest}
}

func (c *objectCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, quiet bool) (transferResult, error) {
	if opts.Preserve {
		return nil, usageError{errors.New("--preserve needs both files on this host")}
	}
	if c.GPU {
		return c.intoGPU(ctx, drv, opts.Options)
	}
	defer metered(&opts.Options, quiet)()
	return transfer.Download(ctx, drv, c.Source, c.Dest, opts.Options)
}

func (c *objectCopy) intoGPU(ctx context.Context, drv *cufile.Driver, o transfer.Options) (transferResult, error) {
	dev, err := parseGPU(c.Dest)
	if err != nil {
		return nil, usageError{err}
	}
	if o.Verify {
		return nil, usageError{errors.New("--verify needs a file to compare")}
	}
	o.GPU = dev
	return transfer.IntoGPU(ctx, drv, c.Source, o)
}
