package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
)

// A copyJob is a planned copy of a file or a directory. It prints as its plan.
type copyJob interface {
	fmt.Stringer
	paths() []string // sources and destinations
	run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error)
}

// planAll plans one copy, or several into a directory.
func planAll(ctx context.Context, sources []string, dst string, o transfer.PlanOptions) (copyJob, error) {
	if len(sources) == 1 {
		return planCopy(ctx, sources[0], dst, o)
	}
	switch st, err := os.Stat(dst); {
	case strings.Contains(dst, "://"):
		return nil, fmt.Errorf("%d sources need a directory of this host, and %s is none (fix: a copy for each)", len(sources), object.Redact(dst))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%d sources need a directory, and there is no %s (fix: mkdir -p %s)", len(sources), dst, dst)
	case err != nil:
		return nil, err
	case !st.IsDir():
		return nil, fmt.Errorf("%d sources need a directory, and %s is a file", len(sources), dst)
	}
	if slices.Contains(sources, stdStream) {
		return nil, usageError{errors.New("standard input is copied alone, to a file that has a name (fix: culvert cp - FILE)")}
	}
	var many manyCopies
	into := map[string]string{}
	for _, src := range sources {
		if strings.HasPrefix(src, remoteScheme) || strings.HasPrefix(src, driveScheme) {
			return nil, fmt.Errorf("%s: a file of another host and a drive are copied alone", src)
		}
		name := filepath.Base(filepath.Clean(src))
		if name == ".." { // it has no name of its own here, as . has none, and DEST/.. is not in DEST
			name = "."
		}
		if object.IsURL(src) {
			name = object.Base(src)
		}
		if other, ok := into[name]; ok {
			return nil, fmt.Errorf("%s and %s would both become %s", object.Redact(other), object.Redact(src), filepath.Join(dst, name))
		}
		into[name] = src
		job, err := planCopy(ctx, src, filepath.Join(dst, name), o)
		if err != nil {
			return nil, err
		}
		many = append(many, job)
	}
	return many, nil
}

// manyCopies are copies one after the other. One that fails does not stop the rest.
type manyCopies []copyJob

func (m manyCopies) String() string { return inLines(m) }

func (m manyCopies) paths() (list []string) {
	for _, job := range m {
		list = append(list, job.paths()...)
	}
	return list
}

func (m manyCopies) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	var results manyResults
	var errs error
	for _, job := range m {
		res, err := job.run(ctx, drv, opts, v)
		if err != nil {
			errs = errors.Join(errs, err)
		} else {
			results = append(results, res)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if errs != nil {
		errs = &partlyCopied{len(results), len(m), errs}
	}
	return results, errs
}

// A partlyCopied error means that some of several sources are not copied, or not all of them.
type partlyCopied struct {
	sources, of int // complete; all
	err         error
}

func (e *partlyCopied) Error() string {
	return fmt.Sprintf("%d of %d sources are complete: %v", e.sources, e.of, e.err)
}

func (e *partlyCopied) Unwrap() error { return e.err }

// manyResults print one after the other, and as a list in JSON.
type manyResults []transferResult

func (m manyResults) String() string { return inLines(m) }

// inLines prints texts, each of which begins on a line of its own.
func inLines[T fmt.Stringer](list []T) string {
	var b strings.Builder
	for _, x := range list {
		b.WriteString(strings.TrimSuffix(x.String(), "\n") + "\n")
	}
	return b.String()
}

// Fields is the receipts of all copies with every field.
func (m manyResults) Fields() string {
	var lines []string
	for _, res := range m {
		lines = append(lines, res.Fields())
	}
	return strings.Join(lines, "\n")
}

func planCopy(ctx context.Context, src, dst string, o transfer.PlanOptions) (copyJob, error) {
	objects := func(src, dst string) (copyJob, bool, error) { return planObject(ctx, src, dst, o) }
	for _, plan := range []func(src, dst string) (copyJob, bool, error){planStream, planRemote, planDrive, objects} {
		job, ok, err := plan(src, dst)
		if ok && err == nil {
			err = comparable(job, o)
		}
		if ok {
			return job, err
		}
	}
	st, err := os.Stat(src)
	if err := cmp.Or(schemeError(src), schemeError(dst)); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		tree, err := transfer.PlanTree(ctx, src, dst, o)
		return treeCopy{tree}, err
	}
	if d, err := os.Stat(dst); err == nil && d.IsDir() {
		dst = filepath.Join(dst, filepath.Base(src))
	}
	_, err = os.Lstat(dst)
	c := &fileCopy{Source: src, Dest: dst, Size: st.Size(), Replace: err == nil}
	if o.Checksum || o.Update {
		c.Unchanged, err = o.Same(ctx, src, dst)
		c.compared = o.Checksum
		return c, err
	}
	return c, nil
}

// comparable rejects options that leave out unchanged files, if one end of a copy is not
// on this host. --update knows the objects below a URL, which have sizes and times.
func comparable(job copyJob, o transfer.PlanOptions) error {
	_, many := job.(objectTree)
	switch {
	case o.Checksum:
		return usageError{errors.New("--checksum needs both files on this host")}
	case o.Update && !many:
		return usageError{errors.New("--update needs both files on this host, or all objects below a URL (fix: s3://BUCKET/PREFIX/)")}
	}
	return nil
}

// schemeError rejects a URL of an unknown kind, unless it is the path of a file.
func schemeError(path string) error {
	scheme, _, isURL := strings.Cut(path, "://")
	if !isURL {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		return nil
	}
	return fmt.Errorf("%s: unknown scheme %q (known: s3, https, http, rdma and nvme)", path, scheme)
}

// A fileCopy copies one file.
type fileCopy struct {
	Source    string `json:"source"`
	Dest      string `json:"destination"`
	Size      int64  `json:"bytes"`
	Replace   bool   `json:"replace"`
	Unchanged bool   `json:"unchanged,omitempty"` // DEST is left alone

	compared bool // by their contents, not by size and time
}

func (c *fileCopy) String() string {
	verb := "copy"
	switch {
	case c.Unchanged:
		verb = "same"
	case c.Replace:
		verb = "replace"
	}
	return fmt.Sprintf("%-8s %s -> %s %s", verb, human.Name(c.Source), human.Name(c.Dest), human.Size(c.Size))
}

func (c *fileCopy) paths() []string { return []string{c.Source, c.Dest} }

func (c *fileCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if c.Unchanged {
		return unchanged{c.Source, c.Dest, true, c.compared}, nil
	}
	defer metered(&opts.Options, v)()
	return transfer.Copy(ctx, drv, c.Source, c.Dest, opts.Options)
}

// unchanged is the result of a copy that --checksum or --update left out.
type unchanged struct {
	Source    string `json:"source"`
	Dest      string `json:"destination"`
	Unchanged bool   `json:"unchanged"`

	compared bool
}

func (u unchanged) String() string {
	what := "size and time"
	if u.compared {
		what = "contents"
	}
	return fmt.Sprintf("%s has the %s of %s, and was not copied", human.Name(u.Dest), what, human.Name(u.Source))
}

// Fields says why there are no receipts.
func (u unchanged) Fields() string { return "nothing was moved" }

// metered shows the progress of a copy of one file until done is called.
func metered(o *transfer.Options, v verbosity) (done func()) {
	if v == quiet {
		return func() {}
	}
	meter := human.NewMeter(os.Stderr)
	o.Advance, o.Resumed = meter.Advance, meter.Resumed
	return meter.Done
}

// A treeCopy copies the contents of a directory.
type treeCopy struct{ *transfer.Tree }

func (c treeCopy) paths() (list []string) {
	for _, f := range c.Files {
		list = append(list, filepath.Join(c.Source, f.Path), filepath.Join(c.Dest, f.Path))
	}
	return list
}

func (c treeCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, v verbosity) (transferResult, error) {
	if v != quiet {
		p := newProgress(os.Stderr, c.Tree, v == verbose)
		defer p.done()
		opts.Watch = p
	}
	return c.Copy(ctx, drv, opts)
}
