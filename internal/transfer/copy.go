// Package transfer copies files and directories through GPU memory, for culvert cp.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/route"
)

// Options say how to copy.
type Options struct {
	GPU     int
	Route   route.ID // required in both directions; None means automatic
	Require route.ID // the worst route that may be used; None allows all
	Verify  bool
	Buffer  uint64                  // bytes of GPU memory; 0 means 64 MiB
	Advance func(done, total int64) // called when bytes have been written; may be nil

	temp     string // base name of the temporary file; "" means a unique one
	keepTime bool   // copy the time of modification

	// For tests.
	named bool                                        // as if the file system had no unnamed files
	step  func()                                      // called before each step that a crash can follow
	flush func(fd int, off, n int64, flags int) error // nil means sync_file_range
}

// A Result describes a copy.
type Result struct {
	Source   string         `json:"source"`
	Dest     string         `json:"destination"`
	GPU      int            `json:"gpu"`
	Bytes    int64          `json:"bytes"`
	Seconds  float64        `json:"seconds"`
	Read     *route.Receipt `json:"read"`
	Write    *route.Receipt `json:"write"`
	Verified bool           `json:"verified"`
	CRC32C   string         `json:"crc32c,omitempty"`
}

// String draws the path of the data and prints a receipt per direction.
func (r Result) String() string {
	name := fmt.Sprintf("gpu:%d", r.GPU)
	text := fmt.Sprintf("%s%s%v\n%v\n", r.Read.Diagram(r.Source, name), r.Write.Diagram(r.Dest, name), r.Read, r.Write)
	if r.Verified {
		text += fmt.Sprintf("verified crc32c=%s\n", r.CRC32C)
	}
	return text
}

// ErrDiffers means that verification found a difference.
var ErrDiffers = errors.New("copy differs from the source")

// Copy copies the file src to dst through GPU memory. It replaces dst atomically once
// all data is on stable storage: a crash leaves the old file or the new one.
func Copy(ctx context.Context, drv *cufile.Driver, src, dst string, o Options) (Result, error) {
	in, info, err := openSource(src)
	if err != nil {
		return Result{}, err
	}
	defer in.Close()
	if err := replaceable(dst, info); err != nil {
		return Result{}, err
	}
	if o.step == nil {
		o.step = func() {}
	}
	if o.flush == nil {
		o.flush = unix.SyncFileRange
	}
	if o.temp == "" {
		atomicfile.Sweep(dst)
	}
	out, err := atomicfile.Create(dst, atomicfile.Options{Mode: 0o600, Unnamed: !o.named, Temp: o.temp, Step: func(string) { o.step() }})
	if err != nil {
		return Result{}, err
	}
	res := Result{Source: src, Dest: dst, GPU: o.GPU}
	err = fill(ctx, drv, in, out.File, info.Size(), o, &res)
	if err == nil && o.keepTime {
		err = setTime(out.File, info.ModTime())
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if err == nil {
		o.step()
		err = out.Sync()
	}
	if err == nil {
		err = out.Commit()
	}
	if err = errors.Join(err, out.Discard()); err != nil {
		return res, err
	}
	if o.Verify {
		return res, verify(ctx, &res)
	}
	return res, nil
}

// replaceable rejects a destination that is not a file, or is the source.
func replaceable(dst string, source os.FileInfo) error {
	if st, err := os.Lstat(dst); err == nil && !st.Mode().IsRegular() && st.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("%s: not a regular file, so it is not replaced", dst)
	}
	if st, err := os.Stat(dst); err == nil && os.SameFile(st, source) {
		return fmt.Errorf("%s: source and destination are the same file", dst)
	}
	return nil
}

// openSource opens a regular file whose size is known.
func openSource(name string) (*os.File, os.FileInfo, error) {
	// Checked first: opening a pipe would wait for its writer.
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: not a regular file", name)
	}
	in, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := in.Stat()
	if err == nil && info.Size() == 0 {
		if n, _ := in.ReadAt(make([]byte, 1), 0); n > 0 {
			err = fmt.Errorf("%s: size is 0 but the file has data (as in /proc); use another tool", name)
		}
	}
	if err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, info, nil
}

// setTime sets the time of modification of a file that may have no name.
func setTime(f *os.File, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return os.NewSyscallError("futimens", unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), []unix.Timespec{ts, ts}, 0))
}

// fill copies the data.
func fill(ctx context.Context, drv *cufile.Driver, in, out *os.File, size int64, o Options, res *Result) error {
	from, err := drv.Register(in)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := drv.Register(out)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, f := range []*cufile.File{from, to} {
		if err := o.require(f); err != nil {
			return err
		}
	}
	p := pump{from: from, to: to, size: size, o: &o, flush: &flusher{fd: int(out.Fd()), sync: o.flush}, res: res}
	if p.whole, err = o.wholeBlocks(from); err != nil {
		return err
	}
	if err := p.open(drv); err != nil {
		return err
	}
	defer p.close()

	res.Read = &route.Receipt{Dir: route.Read, Machine: drv.Machine()}
	res.Write = &route.Receipt{Dir: route.Write, Machine: drv.Machine()}
	start := time.Now()
	err = p.run(ctx)
	if err == nil && p.whole {
		if err = out.Truncate(size); err != nil {
			err = fmt.Errorf("truncate %s to %d bytes: %w", res.Dest, size, errors.Unwrap(err))
		}
	}
	res.Seconds = time.Since(start).Seconds()
	return err
}

// require sets the required routes of a file.
func (o *Options) require(f *cufile.File) error {
	switch {
	case o.Route != route.None:
		return f.Require(o.GPU, o.Route)
	case o.Require != route.None:
		return f.RequireAtLeast(o.GPU, o.Require)
	}
	return nil
}

// wholeBlocks reports whether the required routes of a file move whole blocks only.
// The last block of the file is then read and written in full, and the destination,
// which no other process has open yet, is truncated to its length.
func (o *Options) wholeBlocks(f *cufile.File) (bool, error) {
	if o.Route == route.None && o.Require == route.None {
		return false, nil
	}
	p, err := f.Plan(o.GPU)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(p.Uses, func(u route.Use) bool { return u.Block == 0 }), nil
}

// verify compares both files by plain reads, which share no code with the routes.
func verify(ctx context.Context, res *Result) error {
	want, err := sum(ctx, res.Source)
	if err != nil {
		return err
	}
	got, err := sum(ctx, res.Dest)
	if err != nil {
		return err
	}
	res.CRC32C = fmt.Sprintf("%08x", got)
	if got != want {
		return fmt.Errorf("%s has CRC-32C %08x, %s has %08x: %w", res.Source, want, res.Dest, got, ErrDiffers)
	}
	res.Verified = true
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(ctx context.Context, path string) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, ctxReader{ctx, f}); err != nil {
		return 0, err
	}
	return h.Sum32(), nil
}

// A ctxReader stops reading when the context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
