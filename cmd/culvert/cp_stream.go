package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
)

// stdStream is standard input as SOURCE, and standard output as DEST.
const stdStream = "-"

// A streamCopy copies from standard input, to standard output, or both.
type streamCopy struct {
	Source string `json:"source"`
	Dest   string `json:"destination"`
}

// planStream plans a copy of which an end is a stream; ok is false if none is.
func planStream(src, dst string) (job copyJob, ok bool, err error) {
	if src != stdStream && dst != stdStream {
		return nil, false, nil
	}
	c := &streamCopy{src, dst}
	for _, path := range c.paths() {
		if object.IsURL(path) || strings.HasPrefix(path, remoteScheme) {
			return nil, true, usageError{fmt.Errorf("%s: standard input and output are copied from and to files of this host", object.Redact(path))}
		}
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			return nil, true, usageError{fmt.Errorf("%s is a directory: standard input and output are copied from and to files", path)}
		}
	}
	return c, true, nil
}

func (c *streamCopy) String() string {
	return fmt.Sprintf("%-8s %s -> %s", "copy", human.Name(c.Source), human.Name(c.Dest))
}

// paths are the ends that are files.
func (c *streamCopy) paths() (list []string) {
	for _, path := range []string{c.Source, c.Dest} {
		if path != stdStream {
			list = append(list, path)
		}
	}
	return list
}

func (c *streamCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if opts.Preserve {
		return nil, usageError{errors.New("--preserve needs two files: standard input and output have no attributes")}
	}
	defer metered(&opts.Options, v)()
	switch {
	case c.Source != stdStream:
		return transfer.CopyOut(ctx, drv, c.Source, os.Stdout, opts.Options)
	case c.Dest != stdStream:
		return transfer.CopyIn(ctx, drv, os.Stdin, c.Dest, opts.Options)
	}
	return transfer.CopyThrough(ctx, drv, os.Stdin, os.Stdout, opts.Options)
}
