package tensor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/object"
)

// defaultChunk is the unit of checksums and of writes: large enough for storage,
// small enough to locate damage.
const defaultChunk = 4 << 20

// ErrChecksum reports bytes that are not the ones that were saved.
var ErrChecksum = errors.New("checksum mismatch")

// A ChecksumError says what does not match its manifest.
type ChecksumError struct {
	File    string
	Tensor  string   // if one tensor was checked by itself
	Damaged []Damage // if a file was checked
	Detail  string
}

// A Damage is a range of a file whose bytes have changed, and the tensors in it.
type Damage struct {
	Off     int64    `json:"offset"`
	Len     int64    `json:"bytes"`
	Tensors []string `json:"tensors"` // none: the header
}

func (e *ChecksumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", object.Redact(e.File), ErrChecksum)
	if e.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %q", e.Tensor)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	for i, d := range e.Damaged {
		if i == 3 {
			fmt.Fprintf(&b, "; and %d more ranges", len(e.Damaged)-i)
			break
		}
		what := "the header"
		if len(d.Tensors) > 0 {
			what = human.Name(d.Tensors[0])
			for _, name := range d.Tensors[1:min(len(d.Tensors), 3)] {
				what += ", " + human.Name(name)
			}
			if n := len(d.Tensors) - 3; n > 0 {
				what += fmt.Sprintf(" and %d more", n)
			}
		}
		fmt.Fprintf(&b, "; somewhere in bytes [%d, %d), which hold %s", d.Off, d.Off+d.Len, what)
	}
	return b.String()
}

// Unwrap returns ErrChecksum.
func (e *ChecksumError) Unwrap() error { return ErrChecksum }

// Verify reads a safetensors file and compares it with the manifest beside it.
func Verify(ctx context.Context, path string) (*Manifest, error) {
	r, want, err := openVerified(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := readFile(r)
	if err != nil {
		return nil, err
	}
	f.Path = path
	if f.Size != want.Size {
		return nil, &ChecksumError{File: path, Detail: fmt.Sprintf("the file has %d bytes, the manifest says %d", f.Size, want.Size)}
	}
	t, err := sumFile(ctx, r, f, want.Chunk)
	if err != nil {
		return nil, err
	}
	if err := t.compare(want); err != nil {
		return nil, err
	}
	return want, nil
}

// openVerified opens a file and reads its manifest: both of the same moment, even if
// the file is saved again meanwhile.
func openVerified(path string) (stored, *Manifest, error) {
	for range maxReplaced {
		f, err := openStored(path)
		if err != nil {
			return nil, nil, err
		}
		m, err := openManifest(f, path)
		if !errors.Is(err, ErrChanged) {
			if err != nil {
				f.Close()
			}
			return f, m, err
		}
		f.Close()
	}
	return nil, nil, fmt.Errorf("%s: %w (%d times)", object.Redact(path), ErrChanged, maxReplaced)
}

// maxReplaced is how often a file may be replaced between two system calls. One that
// is read again each time it is saved has been read that often.
const maxReplaced = 100

// openManifest reads the manifest of an open file. It returns ErrChanged if the file
// has lost its name.
func openManifest(f stored, path string) (*Manifest, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, failed := manifestFor(path, st)
	if err := named(f, path); err != nil {
		return nil, err
	}
	return m, failed
}

// named returns ErrChanged unless the path of an open file still leads to it.
func named(f stored, path string) error {
	now, err := statStored(path)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil || os.SameFile(now, st) {
		return err
	}
	if tag := etag(st); tag != nil && tag == etag(now) && now.Size() == st.Size() {
		return nil
	}
	// File systems that fetch objects over the network number them anew. A file that
	// was replaced has no link left.
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Nlink > 0 && now.Size() == st.Size() && now.ModTime().Equal(st.ModTime()) {
		return nil
	}
	return ErrChanged
}

// CreateManifest reads a safetensors file and writes the manifest that [Save] would
// have written. It replaces an existing one. If the file is replaced meanwhile, it
// reads the new one.
func CreateManifest(ctx context.Context, path string) (*Manifest, error) {
	for range maxReplaced {
		m, err := createManifest(ctx, path)
		if !errors.Is(err, ErrChanged) {
			return m, err
		}
	}
	return nil, fmt.Errorf("%s: %w (%d times)", object.Redact(path), ErrChanged, maxReplaced)
}

func createManifest(ctx context.Context, path string) (*Manifest, error) {
	r, err := openStored(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := readFile(r)
	if err != nil {
		return nil, err
	}
	f.Path = path
	t, err := sumFile(ctx, r, f, defaultChunk)
	if err != nil {
		return nil, err
	}
	if object.IsURL(path) {
		return createObjectManifest(ctx, r, path, t)
	}
	real, mode, err := realTarget(path, 0o644)
	if err != nil {
		return nil, err
	}
	m := t.manifest()
	m.describe(f.stat)
	unlock, err := atomicfile.LockDir(ctx, filepath.Dir(real))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := named(r, path); err != nil {
		return nil, err
	}
	atomicfile.Sweep(filepath.Dir(path))
	return m, writeManifest(manifestBeside(path), m, mode, func(string) {})
}

func (t *chunkSums) compare(want *Manifest) error {
	e := &ChecksumError{File: t.file.Path}
	for k, s := range t.chunks {
		if s != want.Chunks[k] {
			e.Damaged = append(e.Damaged, t.damage(int64(k)))
		}
	}
	if len(e.Damaged) > 0 {
		return e
	}
	// The bytes are the same, so these differ only if the manifest itself was
	// damaged or is another file's.
	sums := want.tensorSums()
	for i, info := range t.file.Tensors {
		if s, ok := sums[info.Name]; !ok || s != t.tensor(i) {
			e.Tensor, e.Detail = info.Name, "the chunks match, the tensor does not: the manifest is damaged"
			return e
		}
	}
	if len(sums) != len(t.file.Tensors) {
		e.Detail = fmt.Sprintf("the manifest has %d tensors, the file %d", len(sums), len(t.file.Tensors))
		return e
	}
	return nil
}

func (t *chunkSums) damage(k int64) Damage {
	from, to := t.bounds(k)
	d := Damage{Off: from, Len: to - from, Tensors: []string{}}
	t.each(k, func(tensor int, _, _ int64) error {
		if tensor != inHeader {
			d.Tensors = append(d.Tensors, t.file.Tensors[tensor].Name)
		}
		return nil
	})
	return d
}

// sumFile reads all of an open file.
func sumFile(ctx context.Context, r io.ReaderAt, f *File, chunk int64) (*chunkSums, error) {
	t := newChunkSums(f, chunk)
	buffer := func() ([]byte, func(), error) { return make([]byte, min(chunk, f.Size)), func() {}, nil }
	err := eachChunk(ctx, int64(len(t.chunks)), runtime.GOMAXPROCS(0), buffer, func(k int64, buf []byte) error {
		from, to := t.bounds(k)
		if err := readFull(r, buf[:to-from], from); err != nil {
			return fmt.Errorf("%s: bytes [%d, %d): %w", object.Redact(f.Path), from, to, err)
		}
		t.add(k, buf[:to-from])
		return nil
	})
	return t, err
}

// eachChunk does n chunks in order of their number, several at a time, each worker
// with a buffer of its own.
func eachChunk(ctx context.Context, n int64, workers int, buffer func() ([]byte, func(), error), do func(k int64, buf []byte) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(int64(workers), n) {
		g.Go(func() error {
			buf, free, err := buffer()
			if err != nil {
				return err
			}
			defer free()
			for k := next.Add(1) - 1; k < n; k = next.Add(1) - 1 {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := do(k, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
