package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/limit"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/machine"
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
	limit   string
	// For directories.
	jobs             int
	jobsSet          bool
	follow           bool
	preserve         bool
	include, exclude []string
	update, checksum bool
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

A copy of a file of 64 MiB and more that was stopped or killed leaves its beginning,
.NAME.culvert-part beside DEST. To resume, rerun: what is there is read, compared with
SOURCE and kept as far as it is the same.

If SOURCE is a directory, copy its contents into DEST (created if missing): files
in parallel, symbolic links as links. Existing files are replaced one by one,
others kept. Symbolic links inside DEST are never followed. What cannot be read
is reported at the end, and the rest is copied. To resume, rerun: DEST/` + transfer.JournalName + `
lists finished files and is removed at the end. A finished file is copied
again if it or its source has changed; with --verify it is read and compared.

--include and --exclude choose entries of directories by patterns with *, ?, [a-z],
[!a-z] and {a,b}: without a slash they are compared with names, with one with the path
below SOURCE, in which ** is any number of directories. A slash at the end means a
directory with all below it.
--update leaves files alone that have the size and time of their source, --checksum
those that have its contents: both are read and compared. Others are replaced, also
newer ones, which cp -u and rsync -u keep.

--limit-rate 100M moves at most 100 MB (10^6 bytes) a second, all files together.

A new file or directory has the mode of its source without what the umask takes;
a file that is replaced keeps its mode. Holes of 64 KiB and more stay holes and
are not counted. Files keep their time of modification. Use --preserve for owner,
exact mode, all times, extended attributes and hard links.

SOURCE - is standard input, DEST - standard output; ./- is a file of that name. A stream
goes through host memory and GPU memory in slots, like a file. With DEST -, everything
that cp prints goes to standard error; a terminal is refused. A read error, a closed standard
input and a broken pipe are errors; those of SOURCE - leave the old DEST. --verify compares with
the bytes as they were read from standard input or written to standard output.

SOURCE or DEST can be a file of another host, rdma://HOST:PORT/NAME, that culvert rdma
serve serves there. CULVERT_RDMA_TOKEN has the token, if the server needs one.

SOURCE or DEST can be a drive without a file system, nvme://DRIVE, with DRIVE as culvert
nvme takes it. ?ns=2&offset=1M&size=64M chooses a range: by default all of namespace 1.
What is written to a drive replaces its blocks one by one, not as a whole.

--route and --require-route with rdma or nvme are about that end only: the file at the
other end takes its best route.

SOURCE can be an object, s3://BUCKET/KEY or https://HOST/PATH; DEST is then a file, or
gpu:N to read it into GPU memory and no further. s3://BUCKET/PREFIX/ is all objects
below it; DEST is then a directory, or gpu:N. To resume, rerun with --update: files
get the times of their objects. DEST can be s3://BUCKET/KEY: the object appears as a
whole, after its last byte. For a directory, DEST is a prefix. See docs/objects.md.

EXIT STATUS
  0  all data was copied (and verified, with --verify)
  1  an error; the message names the file and the cause
  2  invalid command line
  3  --route or --require-route cannot be met; a file at DEST is unchanged`,
		Example: `  culvert cp model.bin copy.bin --via gpu:0 --verify
  culvert cp model.bin copy.bin --route ring --json
  culvert cp model.bin copy.bin --require-route nvfs
  culvert cp model.bin copy.bin --receipt receipt.json
  culvert cp rdma://127.0.0.1:18515/models/a.bin a.bin --verify
  culvert cp nvme://vfio:0000:01:00.0?size=1G a.bin --require-route nvme
  culvert cp https://example.org/models/a.bin gpu:0
  culvert cp s3://models/llama/ /data/llama --update
  zstd -dc model.bin.zst | culvert cp - model.bin
  culvert cp model.bin - | sha256sum
  culvert cp models /mnt/models --dry-run
  culvert cp models /mnt/models --jobs 8 --verify
  culvert cp models /mnt/models --update --include '*.safetensors' --exclude old
  culvert cp models /mnt/models --checksum --limit-rate 100M
  culvert cp a.bin b.bin /mnt/backup --quiet
  culvert cp big.bin /mnt/big.bin --trace cp.json # open it in ui.perfetto.dev`,
		Args: args(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, a []string) error {
			if a[len(a)-1] == stdStream { // standard output has the data
				cmd.SetOut(cmd.ErrOrStderr())
			}
			o.jobsSet = cmd.Flags().Changed("jobs")
			return run(o.run)(cmd, a)
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *cpOptions) flags(cmd *cobra.Command) {
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
	f.BoolVarP(&o.verbose, "verbose", "v", false, "also print each file of a directory, and the receipts with every field")
	f.StringArrayVar(&o.include, "include", nil, "of directories, copy only files that match; may be repeated")
	f.StringArrayVar(&o.exclude, "exclude", nil, "of directories, leave out what matches; may be repeated")
	f.BoolVarP(&o.update, "update", "u", false, "leave out files with the size and time of their source")
	f.BoolVarP(&o.checksum, "checksum", "c", false, "leave out files with the contents of their source, whatever their time")
	f.StringVar(&o.limit, "limit-rate", "", "bytes per second of the whole copy, such as 100M or 2.5G (10^n; default no limit)")
	cmd.MarkFlagsMutuallyExclusive("quiet", "json", "verbose")
	for _, letter := range []string{"r", "R"} { // of cp and scp
		f.BoolP(useDirectory[letter], letter, false, "accepted and not needed: directories are copied as a whole")
		_ = f.MarkHidden(useDirectory[letter])
	}
	f.IntVar(&o.jobs, "jobs", 0, "files to copy in parallel (default 4, objects 32)")
	f.BoolVar(&o.preserve, "preserve", false, "keep owner, exact mode, all times, extended attributes and hard links, or fail")
	f.BoolVarP(&o.follow, "follow", "L", false, "follow symbolic links inside directories")
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
	if err := checkOutput("--receipt", o.receipt, a); err != nil {
		return err
	}
	job, err := o.plan(ctx, a)
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
	if far, ok := job.(interface{ on(*machine.Machine) }); ok {
		far.on(m)
	}
	res, err := job.run(ctx, drv, opts, o.verbosity())
	return o.report(out, res, err)
}

func (o *cpOptions) plan(ctx context.Context, a []string) (copyJob, error) {
	filter, err := transfer.NewFilter(o.include, o.exclude)
	if err != nil {
		return nil, usageError{err}
	}
	sources, dest := a[:len(a)-1], a[len(a)-1]
	opts := transfer.PlanOptions{Follow: o.follow, Preserve: o.preserve, Update: o.update, Checksum: o.checksum, Filter: filter}
	meter := human.NewMeterOf("comparing", os.Stderr)
	if o.checksum && !o.quiet {
		opts.Compared = meter.Advance
	}
	job, err := planAll(ctx, sources, dest, opts)
	meter.Done() // before anything else is printed
	if err == nil {
		o.noteUnmatched(filter)
	}
	return job, err
}

// report prints the result of a copy and saves its receipt. Of one that failed it prints
// what was copied before.
func (o *cpOptions) report(out io.Writer, res transferResult, failed error) error {
	if failed != nil {
		if done, many := res.(manyResults); many && len(done) > 0 && !o.quiet && !o.json {
			return errors.Join(showTransfer(out, false, o.verbose, done), failed)
		}
		return failed
	}
	var err error
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

func (o *cpOptions) verbosity() verbosity {
	switch {
	case o.quiet:
		return quiet
	case o.verbose:
		return verbose
	}
	return normal
}

// noteUnmatched prints which patterns did nothing: as a rule they were mistyped.
func (o *cpOptions) noteUnmatched(f *transfer.Filter) {
	list, none := f.Unmatched()
	if o.quiet {
		return
	}
	for _, pattern := range list {
		note("note: pattern %q matched nothing", pattern)
	}
	if none {
		note("note: no file matches --include, so no file of a directory is copied")
	}
}

// redacted joins arguments without the secrets of URLs.
func redacted(args []string) string {
	var b []string
	for _, a := range args {
		b = append(b, object.Redact(a))
	}
	return strings.Join(b, " ")
}

// minRate is the slowest --limit-rate in bytes per second. A smaller one lacks its unit.
const minRate = 1000

func (o *cpOptions) parse() (opts transfer.TreeOptions, err error) {
	opts.Verify, opts.Jobs, opts.Preserve = o.verify, o.jobs, o.preserve
	if o.jobs < 1 && o.jobsSet {
		return opts, fmt.Errorf("--jobs %d must be at least 1", o.jobs)
	}
	if opts.GPU, err = parseGPU(o.via); err != nil {
		return opts, err
	}
	if opts.Cache, err = route.ParseCacheMode(o.cache); err != nil {
		return opts, fmt.Errorf("--cache: %w", err)
	}
	rate, err := human.ParseRate(o.limit)
	if err != nil {
		return opts, fmt.Errorf("--limit-rate: %w", err)
	}
	if o.limit != "" && rate < minRate {
		return opts, fmt.Errorf("--limit-rate %s is %d bytes a second; it must be at least 1k (fix: for megabytes, --limit-rate %sM)", o.limit, rate, strings.TrimSuffix(o.limit, "B/s"))
	}
	opts.Limit = limit.New(rate)
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

// checkReceipt keeps the receipt from overwriting a copied file, or another that is none.
func (o *cpOptions) checkReceipt(job copyJob) error {
	if o.receipt == "" {
		return nil
	}
	for _, path := range job.paths() {
		if filepath.Base(path) == filepath.Base(o.receipt) && samePath(path, o.receipt) {
			return fmt.Errorf("--receipt %s is a file of the copy, %s (fix: name another file)", o.receipt, path)
		}
	}
	return checkMade("--receipt", o.receipt, receiptMark)
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
