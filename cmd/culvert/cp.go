package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/route"
)

type cpOptions struct {
	via     string
	route   string
	require string
	cache   string
	verify  bool
	json    bool
	receipt string
	dryRun  bool
	quiet   bool
	verbose bool
	// For directories.
	jobs             int
	follow           bool
	preserve         bool
	include, exclude []string
	update           bool
}

func newCp() *cobra.Command {
	var o cpOptions
	cmd := &cobra.Command{
		Use:   "cp SOURCE... DEST",
		Short: "Copy files and directories through GPU memory",
		Long: `Copy SOURCE to DEST through GPU memory, each way over the best route, and print a
receipt per direction. Several sources are copied into the directory DEST, under
their names.

DEST is replaced atomically once all data is on stable storage: whatever happens,
it is the old or the new file. Ctrl-C and errors remove the temporary file; one of
a killed process is removed by the next copy into that directory. A symbolic link
at DEST is replaced, not followed; a device or a pipe is an error.

If SOURCE is a directory, copy its contents into DEST (created if missing): files
in parallel, symbolic links as links. Existing files are replaced one by one,
others kept. Symbolic links inside DEST are never followed. What cannot be read
is reported at the end, and the rest is copied. To resume, rerun: DEST/` + transfer.JournalName + `
lists finished files and is removed at the end. A finished file is copied
again if it or its source has changed; with --verify it is read and compared.

--include and --exclude choose entries of directories by patterns with *, ? and [a-z]:
without a slash they are compared with names, with one with the path below SOURCE.
--update leaves files alone that have the size and time of their source.

A new file or directory has the mode of its source without what the umask takes;
a file that is replaced keeps its mode. Holes of 64 KiB and more stay holes and
are not counted. In directories, files keep their time of modification. Use
--preserve for owner, exact mode, all times, extended attributes and hard links.

SOURCE - is standard input, DEST - standard output; ./- is a file of that name. A stream
goes through host memory and GPU memory in slots, like a file. With DEST -, everything
that cp prints goes to standard error. A read error and a broken pipe are errors; those
of SOURCE - leave the old DEST. --verify compares with the bytes as they were read from
standard input or written to standard output.

SOURCE or DEST can be a file of another host, rdma://HOST:PORT/NAME, that culvert rdma
serve serves there. CULVERT_RDMA_TOKEN has the token, if the server needs one.

SOURCE can be an object, s3://BUCKET/KEY or https://HOST/PATH; DEST is then a file, or
gpu:N to read it into GPU memory and no further. DEST can be s3://BUCKET/KEY: the
object appears as a whole, after its last byte. See docs/objects.md.

EXIT STATUS
  0  all data was copied (and verified, with --verify)
  1  an error; the message names the file and the cause
  2  invalid command line
  3  --route or --require-route cannot be met; DEST is unchanged`,
		Example: `  culvert cp model.bin copy.bin --via gpu:0 --verify
  culvert cp model.bin copy.bin --route ring --json
  culvert cp model.bin copy.bin --require-route nvfs
  culvert cp model.bin copy.bin --receipt receipt.json
  culvert cp rdma://127.0.0.1:18515/models/a.bin a.bin --verify
  culvert cp https://example.org/models/a.bin gpu:0
  zstd -dc model.bin.zst | culvert cp - model.bin
  culvert cp model.bin - | sha256sum
  culvert cp models /mnt/models --dry-run
  culvert cp models /mnt/models --jobs 8 --verify
  culvert cp models /mnt/models --update --include '*.safetensors' --exclude old
  culvert cp a.bin b.bin /mnt/backup --quiet`,
		Args: args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if a[len(a)-1] == stdStream { // standard output has the data
				cmd.SetOut(cmd.ErrOrStderr())
			}
			return run(o.run)(cmd, a)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.via, "via", "gpu:0", "GPU to copy through")
	f.StringVar(&o.route, "route", "", "use this route in both directions, or fail")
	f.StringVar(&o.require, "require-route", "", "use this route or better ones for every byte in both directions, or fail")
	f.StringVar(&o.cache, "cache", "auto", "page cache: auto (keep the source if it fits), keep or avoid (both files)")
	f.BoolVar(&o.verify, "verify", false, "read both files again and compare their CRC-32C")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.StringVar(&o.receipt, "receipt", "", "also write the result as JSON to this file")
	f.BoolVarP(&o.dryRun, "dry-run", "n", false, "print what would be copied, and copy nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print errors only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also print the receipts with every field")
	f.StringArrayVar(&o.include, "include", nil, "of directories, copy only files that match; may be repeated")
	f.StringArrayVar(&o.exclude, "exclude", nil, "of directories, leave out what matches; may be repeated")
	f.BoolVarP(&o.update, "update", "u", false, "of directories, leave out files with the size and time of their source")
	cmd.MarkFlagsMutuallyExclusive("quiet", "json", "verbose")
	f.IntVar(&o.jobs, "jobs", 4, "files to copy in parallel")
	f.BoolVar(&o.preserve, "preserve", false, "keep owner, exact mode, all times, extended attributes and hard links, or fail")
	f.BoolVarP(&o.follow, "follow", "L", false, "follow symbolic links inside directories")
	return cmd
}

// A copyJob is a planned copy of a file or a directory. It prints as its plan.
type copyJob interface {
	fmt.Stringer
	paths() []string // sources and destinations
	run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, quiet bool) (transferResult, error)
}

func (o *cpOptions) run(ctx context.Context, a []string, out io.Writer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cp %s: %w", redacted(a), err)
		}
	}()
	opts, err := o.parse()
	if err != nil {
		return usageError{err}
	}
	job, err := planAll(ctx, a[:len(a)-1], a[len(a)-1], transfer.PlanOptions{
		Follow: o.follow, Preserve: o.preserve, Update: o.update, Filter: transfer.Filter{Include: o.include, Exclude: o.exclude},
	})
	if err != nil {
		return err
	}
	if err := o.checkReceipt(job); err != nil {
		return usageError{err}
	}
	if o.dryRun {
		return show(out, o.json, job)
	}
	m, drv, err := openDriver(opts.GPU)
	if err != nil {
		return err
	}
	defer drv.Close()
	if far, ok := job.(*remoteCopy); ok {
		far.machine = m
	}
	res, err := job.run(ctx, drv, opts, o.quiet)
	if err != nil {
		return err
	}
	if !o.quiet {
		err = showTransfer(out, o.json, o.verbose, res)
	}
	if o.receipt != "" {
		if rerr := saveJSON(o.receipt, res); rerr != nil {
			err = errors.Join(err, fmt.Errorf("the copy is complete, but its receipt is not: %w", rerr))
		}
	}
	return err
}

// redacted joins arguments without the secrets of URLs.
func redacted(args []string) string {
	var b []string
	for _, a := range args {
		b = append(b, object.Redact(a))
	}
	return strings.Join(b, " ")
}

func (o *cpOptions) parse() (opts transfer.TreeOptions, err error) {
	opts.Verify, opts.Jobs, opts.Preserve = o.verify, o.jobs, o.preserve
	if o.jobs < 1 {
		return opts, fmt.Errorf("--jobs %d must be at least 1", o.jobs)
	}
	if opts.GPU, err = parseGPU(o.via); err != nil {
		return opts, err
	}
	if opts.Cache, err = route.ParseCacheMode(o.cache); err != nil {
		return opts, fmt.Errorf("--cache: %w", err)
	}
	if o.route != "" && o.require != "" {
		return opts, errors.New("--route and --require-route are mutually exclusive")
	}
	for name, id := range map[string]*route.ID{o.route: &opts.Route, o.require: &opts.Require} {
		if name == "" {
			continue
		}
		if *id, err = route.Parse(name); err != nil {
			return opts, err
		}
	}
	return opts, nil
}

// checkReceipt keeps the receipt from overwriting a copied file.
func (o *cpOptions) checkReceipt(job copyJob) error {
	if o.receipt == "" {
		return nil
	}
	for _, path := range job.paths() {
		if filepath.Base(path) == filepath.Base(o.receipt) && samePath(path, o.receipt) {
			return fmt.Errorf("--receipt %s is a file of the copy, %s (fix: name another file)", o.receipt, path)
		}
	}
	return nil
}

// samePath reports whether two paths name one file, or would.
func samePath(a, b string) bool {
	sa, errA := os.Stat(a)
	sb, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(sa, sb)
	}
	a, errA = filepath.Abs(a)
	b, errB = filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

// planAll plans one copy, or several into a directory.
func planAll(ctx context.Context, sources []string, dst string, o transfer.PlanOptions) (copyJob, error) {
	if len(sources) == 1 {
		return planCopy(ctx, sources[0], dst, o)
	}
	if st, err := os.Stat(dst); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("%d sources need a directory, and %s is none (fix: mkdir %s)", len(sources), dst, dst)
	}
	if slices.Contains(sources, stdStream) {
		return nil, usageError{errors.New("standard input is copied alone, to a file that has a name (fix: culvert cp - FILE)")}
	}
	var many manyCopies
	into := map[string]string{}
	for _, src := range sources {
		if strings.HasPrefix(src, "rdma://") {
			return nil, fmt.Errorf("%s: a file of another host is copied alone", src)
		}
		name := filepath.Base(filepath.Clean(src))
		if object.IsURL(src) {
			name = object.Base(src)
		}
		if other, ok := into[name]; ok {
			return nil, fmt.Errorf("%s and %s would both become %s", other, src, filepath.Join(dst, name))
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

func (m manyCopies) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, quiet bool) (transferResult, error) {
	var results manyResults
	var errs error
	for _, job := range m {
		res, err := job.run(ctx, drv, opts, quiet)
		if ctx.Err() != nil {
			return nil, errors.Join(errs, err)
		}
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		results = append(results, res)
	}
	return results, errs
}

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
	if job, ok, err := planStream(src, dst); ok {
		return job, err
	}
	if job, ok, err := planRemote(src, dst); ok {
		return job, err
	}
	if job, ok, err := planObject(src, dst); ok {
		return job, err
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
	return &fileCopy{src, dst, st.Size(), err == nil}, nil
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
	return fmt.Errorf("%s: unknown scheme %q (known: s3, https, http and rdma)", path, scheme)
}

// A fileCopy copies one file.
type fileCopy struct {
	Source  string `json:"source"`
	Dest    string `json:"destination"`
	Size    int64  `json:"bytes"`
	Replace bool   `json:"replace"`
}

func (c *fileCopy) String() string {
	verb := "copy"
	if c.Replace {
		verb = "replace"
	}
	return fmt.Sprintf("%-8s %s -> %s %s", verb, human.Name(c.Source), human.Name(c.Dest), human.Size(c.Size))
}

func (c *fileCopy) paths() []string { return []string{c.Source, c.Dest} }

func (c *fileCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, quiet bool) (transferResult, error) {
	defer metered(&opts.Options, quiet)()
	return transfer.Copy(ctx, drv, c.Source, c.Dest, opts.Options)
}

// metered shows the progress of a copy of one file until done is called.
func metered(o *transfer.Options, quiet bool) (done func()) {
	if quiet {
		return func() {}
	}
	meter := human.NewMeter(os.Stderr)
	o.Advance = meter.Advance
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

func (c treeCopy) run(ctx context.Context, drv *cufile.Driver, opts transfer.TreeOptions, quiet bool) (transferResult, error) {
	if !quiet {
		p := newProgress(os.Stderr, c.Tree)
		defer p.done()
		opts.Watch = p
	}
	return c.Copy(ctx, drv, opts)
}
