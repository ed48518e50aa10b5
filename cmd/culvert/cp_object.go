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

// An objectCopy copies an object to a file, or into GPU memory and no further, or a
// file to an object.
type objectCopy struct {
	Source string `json:"source"`
	Dest   string `json:"destination"`
	GPU    bool   `json:"gpu"`   // Dest is a GPU
	Write  bool   `json:"write"` // Dest is an object
}

// planObject plans a copy of which one end is an object; ok is false if none is.
func planObject(src, dst string) (job copyJob, ok bool, err error) {
	if !object.IsURL(src) && !object.IsURL(dst) {
		return nil, false, nil
	}
	if object.IsURL(dst) {
		job, err := planUpload(src, dst)
		return job, true, err
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

// planUpload plans the copy of a file to an object. A DEST that ends with a slash gets
// the name of the file.
func planUpload(src, dst string) (copyJob, error) {
	if object.IsURL(src) {
		return nil, usageError{errors.New("one of SOURCE and DEST must be a file of this host")}
	}
	if _, err := object.Parse(dst); err != nil {
		return nil, usageError{err}
	}
	st, err := os.Stat(src)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s is a directory: only files are copied to object stores", src)
	}
	if strings.HasSuffix(dst, "/") {
		dst += filepath.Base(src)
	}
	return &objectCopy{Source: src, Dest: dst, Write: true}, nil
}

func (c *objectCopy) String() string {
	return fmt.Sprintf("%-8s %s -> %s", "copy", human.Name(object.Redact(c.Source)), human.Name(object.Redact(c.Dest)))
}

func (c *objectCopy) paths() []string {
	switch {
	case c.GPU:
		return nil
	case c.Write:
		return []string{c.Source}
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
	if c.Write {
		return transfer.UploadFile(ctx, drv, c.Source, c.Dest, opts.Options)
	}
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
