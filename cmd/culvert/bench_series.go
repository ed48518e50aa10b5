package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/bench/fiojob"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
)

// A benchSeries is what is measured on the same files: the workloads of a command line, or
// those of one job.
type benchSeries struct {
	files     []string
	direct    bool
	workloads []bench.Workload
	whole     bool // each caller moves as much as the files have

	b       *bench.Bench
	methods []bench.Method
}

func (o *benchOptions) series(a []string) ([]*benchSeries, error) {
	if o.job != "" {
		return o.jobs()
	}
	workloads, err := o.workloads(strings.Join(a, ", "))
	if err != nil {
		return nil, usageError{err}
	}
	files, err := o.inDirectories(a, workloads)
	if err != nil {
		return nil, err
	}
	s := &benchSeries{files: files, direct: o.direct, workloads: workloads}
	if err := s.checkURL(o); err != nil {
		return nil, usageError{err}
	}
	return []*benchSeries{s}, nil
}

// inDirectories replaces directories by the files in them that have a block. Files that are
// overwritten must be named.
func (o *benchOptions) inDirectories(names []string, workloads []bench.Workload) (files []string, err error) {
	var block int64
	for _, w := range workloads {
		if block = max(block, w.Block); o.sweepBlocks {
			block = w.Block // the first: larger ones are left out where they do not fit
			break
		}
	}
	for _, name := range names {
		st, err := os.Stat(name)
		if err != nil || !st.IsDir() { // opening it says what is wrong
			files = append(files, name)
			continue
		}
		if workloads[0].Pattern.Writes() {
			return nil, usageError{fmt.Errorf("--rw %s would overwrite all files in the directory %s (fix: name the files)", o.pattern, name)}
		}
		list, small, err := largeFiles(name, block)
		switch {
		case err != nil:
			return nil, err
		case len(list) == 0:
			return nil, fmt.Errorf("%s: no file in this directory has a block of %s", name, human.Size(block))
		case small > 0:
			note("%s smaller than a block of %s left out of %s", human.Count(small, "file"), human.Size(block), human.Name(name))
		}
		files = append(files, list...)
	}
	return files, nil
}

// largeFiles lists the regular files in a directory that have a size or more, and counts the
// others.
func largeFiles(dir string, size int64) (list []string, small int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if st.Size() < size {
			small++
			continue
		}
		list = append(list, filepath.Join(dir, e.Name()))
	}
	return list, small, nil
}

// jobs reads the job file.
func (o *benchOptions) jobs() (list []*benchSeries, err error) {
	kind, ok := benchKinds[o.mem]
	switch {
	case !ok:
		return nil, usageError{o.unknownKind()}
	case o.repeat < 1:
		return nil, usageError{fmt.Errorf("--repeat %d must be at least 1", o.repeat)}
	}
	f, err := os.Open(o.job)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	jobs, err := fiojob.Parse(f, o.job)
	if err != nil {
		return nil, err
	}
	for i := range jobs {
		j := &jobs[i]
		w := jobWorkload(j)
		w.Kind, w.Register, w.Cold, w.Verify = kind, !o.noRegister && kind != gpu.KindManaged, o.cold, o.verify
		if err = w.Check(); err == nil && w.Pattern.Writes() && !o.overwrite {
			err = fmt.Errorf("rw=%s overwrites %s: use --overwrite to confirm", j.Pattern, strings.Join(j.Files, ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: job %s: %w", o.job, j.Line, j.Name, err)
		}
		s := &benchSeries{files: j.Files, direct: j.Direct, workloads: []bench.Workload{w}, whole: j.Size == 0 && !j.TimeBased}
		if err := s.checkURL(o); err != nil {
			return nil, fmt.Errorf("%s:%d: job %s: %w", o.job, j.Line, j.Name, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// jobWorkload translates what fio says of each of its jobs into what all callers do.
func jobWorkload(j *fiojob.Job) bench.Workload {
	w := bench.Workload{
		Job: j.Name, Pattern: bench.Pattern(j.Pattern), Block: j.Block, Threads: j.Callers, Batch: j.Depth,
		Time: j.Runtime, Region: j.Size / int64(len(j.Files)), Limit: j.Rate * int64(j.Callers),
	}
	if !j.TimeBased {
		w.Bytes = j.Size * int64(j.Callers)
	}
	if w.Pattern.Mixed() {
		w.ReadPercent = j.ReadPercent
	}
	return w
}

// open opens the file and finds what to measure on it.
func (s *benchSeries) open(ctx context.Context, o *benchOptions, drv *cufile.Driver, dev int, soft bool) error {
	b, err := s.openBench(ctx, drv, dev, soft)
	if err != nil {
		return err
	}
	if err = s.fit(o, b); err == nil && !o.cold {
		err = b.Warm()
	}
	if err == nil {
		s.methods, err = o.methods(b)
	}
	if err != nil {
		b.Close()
		return err
	}
	s.b = b
	return nil
}

// fit checks all blocks before anything is measured: if the last ones did not fit, or had no
// time, all results would be lost. Blocks that --sweep chose are left out instead.
func (s *benchSeries) fit(o *benchOptions, b *bench.Bench) error {
	if o.sweepBlocks {
		s.workloads = slices.DeleteFunc(s.workloads, func(w bench.Workload) bool { return w.Block > max(b.Size(), 4096) })
	}
	for _, w := range s.workloads {
		if err := cmp.Or(b.CheckBlock(w.Block), w.CheckLimit()); err != nil {
			return err
		}
	}
	return nil
}

func (s *benchSeries) openBench(ctx context.Context, drv *cufile.Driver, dev int, soft bool) (*bench.Bench, error) {
	if object.IsURL(s.files[0]) {
		return bench.OpenObjects(ctx, drv, dev, s.files, soft)
	}
	flags := os.O_RDONLY
	if slices.ContainsFunc(s.workloads, func(w bench.Workload) bool { return w.Pattern.Writes() }) {
		flags = os.O_RDWR
	}
	if s.direct {
		flags |= unix.O_DIRECT
	}
	return bench.Open(drv, dev, s.files, flags, soft)
}

// checkURL reports what cannot be measured on an object.
func (s *benchSeries) checkURL(o *benchOptions) error {
	i := slices.IndexFunc(s.files, object.IsURL)
	if i < 0 {
		return nil
	}
	name := object.Redact(s.files[i])
	if k := slices.IndexFunc(s.files, func(f string) bool { return !object.IsURL(f) }); k >= 0 {
		return fmt.Errorf("%s is an object and %s a file: they are measured apart", name, s.files[k])
	}
	writes := slices.ContainsFunc(s.workloads, func(w bench.Workload) bool { return w.Pattern.Writes() })
	switch {
	case writes:
		return fmt.Errorf("%s: bench only reads objects, which are written as a whole (fix: culvert cp FILE %s prints the rate of an upload)", name, name)
	case o.cold || s.direct:
		return fmt.Errorf("%s: --cold and --direct are about the page cache, which has no objects", name)
	case slices.Contains(o.peers, string(bench.PeerLibcufile)):
		return fmt.Errorf("%s: --peer libcufile reads files, not objects", name)
	}
	for _, url := range s.files {
		if _, err := object.Parse(url); err != nil {
			return err
		}
	}
	return nil
}

func (s *benchSeries) measure(ctx context.Context, o *benchOptions, print bench.Printer) error {
	for _, w := range s.workloads { // methods to compare run next to each other
		if s.whole {
			w.Bytes = s.b.Size() * int64(len(s.files)) * int64(w.Threads)
		}
		w.Heat = o.html != ""
		for _, m := range s.methods {
			if err := o.measure(ctx, s.b, w, m, print); err != nil {
				return err
			}
		}
	}
	return nil
}
