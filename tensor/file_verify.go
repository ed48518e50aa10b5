package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
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
	fmt.Fprintf(&b, "%s: %v", e.File, ErrChecksum)
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
		fmt.Fprintf(&b, "; bytes [%d, %d) in %s", d.Off, d.Off+d.Len, what)
	}
	return b.String()
}

// Unwrap returns ErrChecksum.
func (e *ChecksumError) Unwrap() error { return ErrChecksum }

// Verify reads a safetensors file and compares it with the manifest beside it.
func Verify(ctx context.Context, path string) (*Manifest, error) {
	want, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if f.Size != want.Size {
		return nil, &ChecksumError{File: path, Detail: fmt.Sprintf("the file has %d bytes, the manifest says %d", f.Size, want.Size)}
	}
	t, err := sumFile(ctx, f, want.Chunk)
	if err != nil {
		return nil, err
	}
	if err := t.compare(want); err != nil {
		return nil, err
	}
	return want, nil
}

// CreateManifest reads a safetensors file and writes the manifest that [Save] would
// have written. It replaces an existing one.
func CreateManifest(ctx context.Context, path string) (*Manifest, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	t, err := sumFile(ctx, f, defaultChunk)
	if err != nil {
		return nil, err
	}
	_, mode, err := realTarget(path)
	if err != nil {
		return nil, err
	}
	m := t.manifest()
	return m, atomicfile.Write(manifestBeside(path), mode, m.write)
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

// sumFile reads all of a file.
func sumFile(ctx context.Context, f *File, chunk int64) (*chunkSums, error) {
	r, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := newChunkSums(f, chunk)
	buffer := func() ([]byte, func(), error) { return make([]byte, min(chunk, f.Size)), func() {}, nil }
	err = eachChunk(ctx, int64(len(t.chunks)), runtime.GOMAXPROCS(0), buffer, func(k int64, buf []byte) error {
		from, to := t.bounds(k)
		if err := readFull(r, buf[:to-from], from); err != nil {
			return fmt.Errorf("%s: bytes [%d, %d): %w", f.Path, from, to, err)
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
