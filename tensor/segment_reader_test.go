package tensor

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestSegmentReader: parts of tensors of several files, by several callers at once, who
// exchange the open file under each other.
func TestSegmentReader(t *testing.T) {
	m := transformer(t)
	if len(m.Files) < 2 {
		t.Fatal("the model has one file")
	}
	want := make([][]byte, len(m.Tensors))
	for i := range m.Tensors {
		want[i] = readTensor(t, m, m.Tensors[i].Name)
	}
	r := NewSegmentReader(m)
	var g errgroup.Group
	for seed := range uint64(4) {
		g.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				i := rng.IntN(len(want))
				from := rng.IntN(len(want[i]) + 1)
				to := make([]byte, rng.IntN(len(want[i])-from+1))
				if err := r.Read(i, int64(from), to); err != nil {
					return err
				}
				if !bytes.Equal(to, want[i][from:from+len(to)]) {
					t.Errorf("%s has other bytes from %d on", m.Tensors[i].Name, from)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []struct {
		i   int
		off int64
		n   int
	}{{-1, 0, 0}, {len(want), 0, 0}, {0, -1, 1}, {0, 0, len(want[0]) + 1}, {0, int64(len(want[0])), 1}} {
		if err := r.Read(wrong.i, wrong.off, make([]byte, wrong.n)); err == nil {
			t.Errorf("read %+v", wrong)
		}
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if err := r.Read(0, 0, nil); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A file that was replaced is an error, although the one that was read is still open.
func TestSegmentReaderChanged(t *testing.T) {
	m := transformer(t)
	r := NewSegmentReader(m)
	defer r.Close()
	one := make([]byte, 1)
	if err := r.Read(0, 0, one); err != nil {
		t.Fatal(err)
	}
	path := m.Files[m.Tensors[0].File].Path
	data, err := os.ReadFile(path)
	if err == nil {
		err = errors.Join(os.WriteFile(path+".new", append(data, 0), 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Read(0, 0, one); !errors.Is(err, ErrChanged) {
		t.Errorf("replaced: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(0, 0, one); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}
