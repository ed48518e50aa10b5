package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
)

var (
	errPreserve        = usageError{errors.New("--preserve needs both files on this host")}
	errNothingToVerify = usageError{errors.New("--verify needs a file to compare")}
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
func planObject(ctx context.Context, src, dst string, o transfer.PlanOptions) (job copyJob, ok bool, err error) {
	if !object.IsURL(src) && !object.IsURL(dst) {
		return nil, false, nil
	}
	if object.IsURL(dst) {
		job, err := planUpload(ctx, src, dst, o)
		return job, true, err
	}
	if _, err := object.Parse(src); err != nil {
		return nil, true, usageError{err}
	}
	if object.IsDirURL(src) {
		tree, err := planObjects(ctx, src, dst, o)
		return tree, true, err
	}
	c := &objectCopy{Source: src, Dest: dst, GPU: strings.HasPrefix(dst, "gpu:")}
	if st, err := os.Stat(dst); !c.GPU && err == nil && st.IsDir() {
		c.Dest = filepath.Join(dst, object.Base(src))
	}
	return c, true, nil
}

// planUpload plans the copy of a file to an object, or of a directory to the objects
// below a URL. For a file, a DEST that ends with a slash gets the name of the file.
func planUpload(ctx context.Context, src, dst string, o transfer.PlanOptions) (copyJob, error) {
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
		tree, err := transfer.PlanUploads(ctx, src, dst, o)
		return objectTree{tree, -1}, err
	}
	if strings.HasSuffix(dst, "/") {
		dst += filepath.Base(src)
	}
	return &objectCopy{Source: src, Dest: dst, Write: true}, nil
}

// MarshalJSON leaves out what may be secret in the URLs.
func (c *objectCopy) MarshalJSON() ([]byte, error) {
	type shown objectCopy // without this method
	s := shown(*c)
	s.Source, s.Dest = object.Redact(s.Source), object.Redact(s.Dest)
	return json.Marshal(s)
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

func (c *objectCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if opts.Preserve {
		return nil, errPreserve
	}
	if c.GPU {
		return c.intoGPU(ctx, drv, opts.Options)
	}
	defer metered(&opts.Options, v)()
	if c.Write {
		return transfer.UploadFile(ctx, drv, c.Source, c.Dest, opts.Options)
	}
	res, err := transfer.Download(ctx, drv, c.Source, c.Dest, opts.Options)
	return res, c.hint(ctx, err)
}

// hint adds what the user may have meant to the error of a missing object.
func (c *objectCopy) hint(ctx context.Context, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if below, lerr := object.List(ctx, c.Source); lerr != nil || len(below) == 0 {
		return err
	}
	return fmt.Errorf("%w (fix: %s/ is the objects below it)", err, object.Redact(c.Source))
}

func (c *objectCopy) intoGPU(ctx context.Context, drv *cufile.Driver, o transfer.Options) (transferResult, error) {
	dev, err := parseGPU(c.Dest)
	if err != nil {
		return nil, usageError{err}
	}
	if o.Verify {
		return nil, errNothingToVerify
	}
	o.GPU = dev
	return transfer.IntoGPU(ctx, drv, c.Source, o)
}

// An objectTree copies the objects below a URL, or to there.
type objectTree struct {
	*transfer.ObjectTree
	gpu int // the destination; -1 if it is none
}

func planObjects(ctx context.Context, src, dst string, o transfer.PlanOptions) (copyJob, error) {
	c := objectTree{gpu: -1}
	toGPU := strings.HasPrefix(dst, "gpu:")
	var err error
	if toGPU {
		if c.gpu, err = parseGPU(dst); err != nil {
			return nil, usageError{err}
		}
	}
	c.ObjectTree, err = transfer.PlanObjects(ctx, src, dst, toGPU, o)
	return c, err
}

func (c objectTree) paths() (list []string) {
	if c.gpu >= 0 {
		return nil
	}
	dir := c.Dest
	if object.IsURL(dir) {
		dir = c.Source
	}
	for _, f := range c.Files {
		list = append(list, filepath.Join(dir, f.Path))
	}
	return list
}

func (c objectTree) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	switch {
	case opts.Preserve:
		return nil, errPreserve
	case c.gpu >= 0 && opts.Verify:
		return nil, errNothingToVerify
	case c.gpu >= 0:
		opts.GPU = c.gpu
	}
	if v != quiet {
		p := newProgress(os.Stderr, c, v == verbose)
		defer p.done()
		opts.Watch = p
	}
	return c.Copy(ctx, drv, opts)
}
