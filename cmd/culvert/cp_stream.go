package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

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
			return nil, true, usageError{fmt.Errorf("%s is a directory: standard input and output are copied from and to files (fix: name a file; tar makes one of a directory)", path)}
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
	if c.Source == stdStream && wasClosed(os.Stdin) {
		return nil, errors.New("standard input is closed, so DEST would be empty (fix: for an empty file, < /dev/null)")
	}
	if c.Dest == stdStream && human.IsTerminal(os.Stdout) {
		return nil, errors.New("standard output is a terminal, and the data may be anything (fix: culvert cp FILE - | PROGRAM)")
	}
	if c.Dest == stdStream && v != quiet && wasClosed(os.Stdout) {
		note("note: standard output is closed, or it is /dev/null: the data is lost")
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

// wasClosed reports whether a standard stream was probably closed when the process started:
// Go's runtime then opens /dev/null in its place, for reading and writing. A shell opens it
// for one of them; Python's subprocess.DEVNULL is both, too.
func wasClosed(f *os.File) bool {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
}
