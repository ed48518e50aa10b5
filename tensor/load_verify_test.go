package tensor

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
)

// damaged is a model with one bit changed, and the tensor that has it.
func damaged(t *testing.T, name string, at int64) (*Model, Info) {
	t.Helper()
	m := transformer(t)
	e, _ := m.Lookup(name)
	f, err := os.OpenFile(m.Files[e.File].Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, e.Off+at)
	b[0] ^= 0x80
	_, werr := f.WriteAt(b, e.Off+at)
	if err := errors.Join(err, werr, f.Close()); err != nil {
		t.Fatal(err)
	}
	if m, err = Open(m.Path); err != nil {
		t.Fatal(err)
	}
	return m, e
}

// A changed bit is found wherever it is, however the tensor was read, and the
// tensor that has it is never handed over.
func TestLoadVerifyFindsDamage(t *testing.T) {
	const size = 64 * 128
	for _, tt := range []struct {
		name string
		opts PlanOptions
		load LoadOptions
	}{
		{"in one read", PlanOptions{}, LoadOptions{}},
		{"in stretches", PlanOptions{MaxRead: 4096}, LoadOptions{}},
		{"by layer", PlanOptions{ByLayer: true}, LoadOptions{}},
		{"in a window", PlanOptions{PerTensor: true}, LoadOptions{Window: 32 << 10}},
	} {
		for _, at := range []int64{0, 4095, 4096, size - 1} {
			m, e := damaged(t, "model.layers.3.mlp.down_proj.weight", at)
			tt.load.Verify = true
			l, err := newLoad(planFor(t, m, Selection{}, []int{0}, &tt.opts), softEngine(t, 64<<20), &tt.load)
			if err != nil {
				t.Fatal(err)
			}
			var last error
			for x, err := range l.Tensors(t.Context()) {
				if err == nil && x.Name == e.Name {
					t.Errorf("%s, byte %d: the damaged tensor was handed over", tt.name, at)
				}
				last = err
			}
			ce, ok := errors.AsType[*ChecksumError](last)
			if !ok || ce.Tensor != e.Name || ce.File != m.Files[e.File].Path {
				t.Errorf("%s, byte %d: error %v", tt.name, at, last)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Sums are computed while other reads are under way: here the second file is not
// read before a verified tensor of the first was handed over.
func TestLoadVerifiesBesideReads(t *testing.T) {
	m := transformer(t)
	got := make(chan struct{})
	var reads atomic.Int64
	e := hookedEngine{softEngine(t, 64<<20), func(ctx context.Context, _ []segment) error {
		if reads.Add(1) == 1 {
			return nil
		}
		select {
		case <-got:
		case <-ctx.Done():
		}
		return ctx.Err()
	}}
	l, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), e, &LoadOptions{Verify: true, depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Span.Len == 0 {
			continue
		}
		if n++; n == 1 {
			close(got)
		}
	}
	if reads.Load() != 2 {
		t.Errorf("%d batches for two files", reads.Load())
	}
}

// A tensor that the manifest lacks is found before anything is read.
func TestLoadVerifyNeedsEverySum(t *testing.T) {
	m := transformer(t)
	path := m.Files[0].Path
	manifest, err := readManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	gone := manifest.Tensors[0].Name
	manifest.Tensors = manifest.Tensors[1:]
	if err := atomicfile.Write(manifestBeside(path), 0o600, manifest.write); err != nil {
		t.Fatal(err)
	}
	_, err = newLoad(planFor(t, m, Selection{}, []int{0}, nil), softEngine(t, 64<<20), &LoadOptions{Verify: true})
	if !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), gone) {
		t.Errorf("error %v", err)
	}
}

func TestJoinedInAnyOrder(t *testing.T) {
	data := make([]byte, 10_000)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	var list []arrival
	for off := 0; off < len(data); {
		n := min(1+rand.IntN(3000), len(data)-off)
		list = append(list, arrival{off: uint64(off), span: gpu.Span{Len: uint64(n)}, sum: sumOf(data[off : off+n])})
		off += n
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if got := joined(list); got != sumOf(data) {
		t.Errorf("joined is %v, the sum %v", got, sumOf(data))
	}
}

// Kernels are loaded once for all loads that share Sums, and given back.
func TestSumsAreKept(t *testing.T) {
	m := transformer(t)
	e := softEngine(t, 64<<20)
	counted := &loadCounter{engine: e}
	sums := &Sums{}
	p := planFor(t, m, Selection{}, []int{0}, nil)
	for range 3 {
		l, err := newLoad(p, counted, &LoadOptions{Verify: true, Sums: sums})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := counted.modules.Load(); n != 1 {
		t.Errorf("kernels were loaded %d times", n)
	}
	if err := sums.Close(); err != nil {
		t.Error(err)
	}
}

// A loadCounter counts the modules that are loaded on its devices.
type loadCounter struct {
	engine
	dev     gpu.Device
	modules atomic.Int64
}

type loadCounterDevice struct {
	gpu.Device
	modules *atomic.Int64
}

func (d loadCounterDevice) Load(ptx []byte) (gpu.Module, error) {
	d.modules.Add(1)
	return d.Device.Load(ptx)
}

func (c *loadCounter) device(i int) (gpu.Device, error) {
	if c.dev == nil {
		dev, err := c.engine.device(i)
		if err != nil {
			return nil, err
		}
		c.dev = loadCounterDevice{dev, &c.modules}
	}
	return c.dev, nil
}

// Small reads may bring nothing but what lies between two tensors that are read
// together: it is nobody's, and does not get into a sum.
func TestLoadVerifyOverGaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gap.safetensors")
	sources := []Source{
		source("a", F32, 1, 4<<20/4), source("b", F32, 2, 32<<10/4), source("c", F32, 3, 4<<20/4),
	}
	if _, err := Save(t.Context(), path, sources, nil); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	e := softEngine(t, 64<<20)
	for _, read := range []int64{4096, 8192, 64 << 10, 0} {
		p := planFor(t, m, Selection{Only: []string{"a", "c"}}, []int{0}, &PlanOptions{MaxRead: read})
		if apart := p.Tensors[1].Off - p.Tensors[0].Off; apart != 4<<20+32<<10 {
			t.Fatalf("the tensors are %d apart: they are not read together", apart)
		}
		l, err := newLoad(p, e, &LoadOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for x, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatalf("reads of %d: %v", read, err)
			}
			if !x.Verified || !bytes.Equal(onDevice(t, e, x), readTensor(t, m, x.Name)) {
				t.Errorf("reads of %d: %s is wrong", read, x.Name)
			}
			n++
		}
		if n != 2 {
			t.Errorf("reads of %d: %d tensors", read, n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
