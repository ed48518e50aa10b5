package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// Same reports whether dst is a file that Checksum or Update leaves alone when src is
// copied to it. For Checksum both are read and compared byte by byte: they are here, and
// no checksum is as exact.
func (o PlanOptions) Same(ctx context.Context, src, dst string) (bool, error) {
	a, err := atomicfile.OpenRegular(src)
	if err != nil {
		return false, err
	}
	defer a.Close()
	if st, err := os.Lstat(dst); err != nil || !st.Mode().IsRegular() {
		return false, nil // the copy replaces it, or says why not
	}
	b, err := atomicfile.OpenRegular(dst)
	if err != nil {
		return false, nil
	}
	defer b.Close()
	return o.same(ctx, a, b, o.compared)
}

// compared reports how much has been compared.
func (o *PlanOptions) compared(done, total int64) {
	if o.Compared != nil {
		o.Compared(done, total)
	}
}

// same compares open files. It calls seen as it advances.
func (o *PlanOptions) same(ctx context.Context, a, b *os.File, seen func(off, size int64)) (bool, error) {
	var src, dst unix.Stat_t
	if err := errors.Join(unix.Fstat(int(a.Fd()), &src), unix.Fstat(int(b.Fd()), &dst)); err != nil {
		return false, err
	}
	if sameFile(&src, &dst) {
		return false, nil
	}
	if o.Update && !o.Checksum {
		return src.Size == dst.Size && src.Mtim == dst.Mtim && (!o.Preserve || sameAttributes(&src, &dst)), nil
	}
	if !o.comparable(&src, &dst) {
		return false, nil
	}
	n, err := samePrefix(ctx, a, b, src.Size, func(off int64) { seen(off, src.Size) })
	return n == src.Size, err
}

// compareUnit is how much of two files is compared at a time.
const compareUnit = 1 << 20

// samePrefix returns how many of the first size bytes are the same in both files, to
// the beginning of the unit that differs. What is a hole in both is not read. It calls
// seen as it advances.
func samePrefix(ctx context.Context, a, b *os.File, size int64, seen func(off int64)) (int64, error) {
	x, y := make([]byte, compareUnit), make([]byte, compareUnit)
	for off := int64(0); off < size; {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if skip := min(nextData(a, off, size), nextData(b, off, size)) / compareUnit * compareUnit; skip > off {
			off = skip
			continue
		}
		n := min(compareUnit, size-off)
		if err := readBoth(a, b, x[:n], y[:n], off); err != nil {
			if errors.Is(err, io.EOF) {
				return off, nil
			}
			return 0, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return off, nil
		}
		off += n
		seen(off)
	}
	return size, nil
}

func readBoth(a, b *os.File, x, y []byte, off int64) error {
	if _, err := a.ReadAt(x, off); err != nil {
		return err
	}
	_, err := b.ReadAt(y, off)
	return err
}

// nextData returns where a file has data at or after off, at most size.
func nextData(f *os.File, off, size int64) int64 {
	at, err := unix.Seek(int(f.Fd()), off, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size // also beyond the end of the file
	case err != nil:
		return off // the file system knows no holes
	}
	return min(at, size)
}

// comparable reports whether PlanOptions.Checksum may leave a file alone if its
// contents are those of the source. With Preserve that needs the same attributes, too.
// Names of one file are compared by the copy, which keeps them together.
func (o *PlanOptions) comparable(src, dst *unix.Stat_t) bool {
	if !o.Checksum || dst.Mode&unix.S_IFMT != unix.S_IFREG || src.Size != dst.Size || o.Preserve && src.Nlink > 1 {
		return false
	}
	return !o.Preserve || sameAttributes(src, dst) && src.Mtim == dst.Mtim
}

// sameAttributes compares what Preserve keeps and a listing shows, but for the times.
func sameAttributes(a, b *unix.Stat_t) bool {
	return a.Mode == b.Mode && a.Uid == b.Uid && a.Gid == b.Gid
}

// leaveSame compares files with their copies, and takes those out of the plan that are
// the same. What cannot be read is left to the copy, which reports it.
func (w *walker) leaveSame() error {
	same := make([]bool, len(w.tree.Files))
	var done atomic.Int64
	total := int64(0)
	for i := range w.tree.Files {
		if f := &w.tree.Files[i]; f.compare {
			total += f.Size
		}
	}
	g, ctx := errgroup.WithContext(w.ctx)
	g.SetLimit(defaultJobs)
	for i := range w.tree.Files {
		if f := &w.tree.Files[i]; f.compare {
			g.Go(func() error {
				last := int64(0)
				same[i] = w.sameFile(ctx, f.Path, func(off, _ int64) {
					w.tree.opts.compared(done.Add(off-last), total)
					last = off
				})
				done.Add(f.Size - last) // nothing behind a difference is read
				return ctx.Err()
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	rest := w.tree.Files[:0]
	for i, f := range w.tree.Files {
		if same[i] {
			w.tree.Unchanged++
		} else {
			rest = append(rest, f)
		}
	}
	w.tree.Files = rest
	return nil
}

func (w *walker) sameFile(ctx context.Context, rel string, seen func(off, size int64)) bool {
	return bothOpen(w.src, w.dst, rel, func(a, b *os.File) bool {
		same, err := w.tree.opts.same(ctx, a, b, seen)
		return err == nil && same
	})
}

// bothOpen calls f with a file of both directories; false if one of them has none.
func bothOpen(src, dst *atomicfile.Dir, rel string, f func(a, b *os.File) bool) bool {
	a, _, err := src.OpenRegular(rel)
	if err != nil {
		return false
	}
	defer a.Close()
	b, _, err := dst.OpenRegular(rel)
	if err != nil {
		return false
	}
	defer b.Close()
	return f(a, b)
}
