package tensor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

func planFor(t testing.TB, m *Model, sel Selection, devices []int, opts *PlanOptions) *Plan {
	t.Helper()
	targets, err := sel.Spread(devices)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlan(m, targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onDevice is the bytes of a loaded tensor.
func onDevice(t testing.TB, e engine, x *Tensor) []byte {
	t.Helper()
	b := make([]byte, x.Span.Len)
	if len(b) == 0 {
		return b
	}
	dev, err := e.device(x.Span.Dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyOut(b, x.Span.Addr()); err != nil {
		t.Fatal(err)
	}
	return b
}

// part is the bytes that cuts leave of a tensor, for types of whole bytes.
func part(t testing.TB, m *Model, p *Placed) []byte {
	t.Helper()
	e, _ := m.Lookup(p.Name)
	all := readTensor(t, m, p.Name)
	size := int64(e.Dtype.Bits() / 8)
	_, indexes := elements(e.Shape, p.Cuts)
	var b []byte
	for _, i := range indexes {
		b = append(b, all[i*size:(i+1)*size]...)
	}
	return b
}

func TestLoad(t *testing.T) {
	m := transformer(t)
	tests := []struct {
		name    string
		sel     Selection
		devices []int
		opts    PlanOptions
		load    LoadOptions
	}{
		{"whole", Selection{}, []int{0}, PlanOptions{}, LoadOptions{}},
		{"second GPU", Selection{}, []int{1}, PlanOptions{}, LoadOptions{depth: 1}},
		{"one allocation each", Selection{}, []int{0}, PlanOptions{PerTensor: true}, LoadOptions{}},
		{"by layer", Selection{}, []int{0}, PlanOptions{ByLayer: true}, LoadOptions{}},
		{"small reads", Selection{}, []int{0}, PlanOptions{MaxRead: 4096}, LoadOptions{depth: 7}},
		{"tensor parallel", Selection{Tensor: Rank{eachDevice, 2}}, []int{0, 1}, PlanOptions{}, LoadOptions{}},
		{"pipeline", Selection{}, []int{1, 0}, PlanOptions{}, LoadOptions{}},
		{"by name", Selection{Only: []string{"*proj*"}}, []int{0}, PlanOptions{}, LoadOptions{}},
		{"exportable memory", Selection{}, []int{0}, PlanOptions{}, LoadOptions{Kind: gpu.KindVirtual}},
		{"host memory", Selection{}, []int{0}, PlanOptions{}, LoadOptions{Kind: gpu.KindHost}},
		{"window", Selection{}, []int{0}, PlanOptions{PerTensor: true}, LoadOptions{Window: 32 << 10}},
		{"windows", Selection{Tensor: Rank{eachDevice, 2}}, []int{0, 1}, PlanOptions{PerTensor: true, Apart: true}, LoadOptions{Window: 20 << 10}},
		{"tensor parallel on four", Selection{Tensor: Rank{eachDevice, 4}}, []int{3, 1, 0, 2}, PlanOptions{}, LoadOptions{}},
		{"replicas", Selection{Replicas: 4}, []int{0, 1, 2, 3}, PlanOptions{}, LoadOptions{}},
		{"exportable replicas", Selection{Replicas: 2}, []int{0, 1}, PlanOptions{}, LoadOptions{Kind: gpu.KindVirtual}},
		{"replicas of slices", Selection{Tensor: Rank{eachDevice, 2}, Replicas: 2}, []int{0, 1, 2, 3}, PlanOptions{MaxRead: 8192}, LoadOptions{}},
		{"replicas, one allocation each", Selection{Replicas: 3}, []int{0, 1, 2}, PlanOptions{PerTensor: true, ByLayer: true}, LoadOptions{}},
		{"verified replicas", Selection{Replicas: 3}, []int{2, 1, 0}, PlanOptions{MaxRead: 4096}, LoadOptions{Verify: true}},
		{"verified", Selection{}, []int{0, 1}, PlanOptions{}, LoadOptions{Verify: true}},
		{"verified in small reads", Selection{}, []int{0}, PlanOptions{MaxRead: 4096}, LoadOptions{Verify: true, depth: 3}},
		{"verified by layer", Selection{}, []int{0, 1}, PlanOptions{ByLayer: true, MaxRead: 8192}, LoadOptions{Verify: true}},
		{"verified window", Selection{}, []int{0}, PlanOptions{PerTensor: true, MaxRead: 4096}, LoadOptions{Window: 32 << 10, Verify: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := softEngine(t, 64<<20)
			p := planFor(t, m, tt.sel, tt.devices, &tt.opts)
			l, err := newLoad(p, e, &tt.load)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}()
			type key struct {
				device int
				name   string
			}
			want := map[key]*Placed{}
			for i := range p.Tensors {
				want[key{p.Buffers[p.Tensors[i].Buffer].Device, p.Tensors[i].Name}] = &p.Tensors[i]
			}
			for x, err := range l.Tensors(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				k := key{x.Span.Dev, x.Name}
				placed := want[k]
				delete(want, k)
				if placed == nil {
					t.Fatalf("%v came twice or unasked", k)
				}
				if uint64(x.Span.Addr())%p.Align != 0 {
					t.Errorf("%s lies at %v", x.Name, x.Span.Addr())
				}
				if !bytes.Equal(onDevice(t, e, x), part(t, m, placed)) {
					t.Errorf("%s has other bytes on the device", x.Name)
				}
				if x.Verified != tt.load.Verify {
					t.Errorf("%s: verified is %v", x.Name, x.Verified)
				}
			}
			if len(want) > 0 {
				t.Errorf("%d tensors are missing", len(want))
			}
			checkReport(t, l.Report(), p)
		})
	}
}

func checkReport(t *testing.T, r Report, p *Plan) {
	t.Helper()
	totals := p.Totals()
	if r.Tensors != len(p.Tensors) || r.Bytes != totals.Read || r.Copied != totals.Copied || r.Wanted != totals.Wanted {
		t.Errorf("report %+v for %+v", r, totals)
	}
	if r.First <= 0 || r.Last < r.First {
		t.Errorf("times %v, %v", r.First, r.Last)
	}
	var sum int64
	for _, f := range r.Files {
		sum += f.Receipt.Bytes
	}
	if sum != totals.Read {
		t.Errorf("files sum up to %d bytes", sum)
	}
}

// One read at a time, by layer: what a forward pass needs first is there first.
func TestLoadOrder(t *testing.T) {
	m := transformer(t)
	e := softEngine(t, 64<<20)
	p := planFor(t, m, Selection{}, []int{0}, &PlanOptions{ByLayer: true})
	l, err := newLoad(p, e, &LoadOptions{depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var turns []int
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Span.Len > 0 {
			turns = append(turns, turnOf(x.Name))
		}
	}
	if !slices.IsSorted(turns) {
		t.Errorf("layers came as %v", turns)
	}
}

// 20 GiB of tensors stream through a GPU of 1 GiB, and host memory stays within what
// the GPU, whose memory is host memory here, and the ring may have. The window is half
// of the GPU; memory that was freed stays resident until it is used again.
func TestLoadStreams(t *testing.T) {
	t.Parallel()
	const each, window, device, ring, slack = 64 << 20, 512 << 20, 1 << 30, 256 << 20, 64 << 20
	count := 320
	if testing.Short() {
		count = 16
	}
	m, err := Open(sparse(t, each, count))
	if err != nil {
		t.Fatal(err)
	}
	e := softEngine(t, device)
	l, err := newLoad(planFor(t, m, Selection{}, []int{0}, &PlanOptions{PerTensor: true}), e, &LoadOptions{Window: window})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, most, n := resident(t), int64(0), 0
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ends := *x
		ends.Span = x.Span.Slice(each-4096, 4096)
		if !bytes.Equal(onDevice(t, e, &ends), make([]byte, 4096)) {
			t.Fatalf("%s does not end in zeros", x.Name)
		}
		most = max(most, resident(t)-before)
		n++
	}
	if n != count {
		t.Errorf("%d tensors, want %d", n, count)
	}
	// Under the race detector device memory may be on the heap, and all memory has a shadow.
	if most > device+ring+slack && !raceEnabled {
		t.Errorf("%d MiB of host memory for a GPU of %d MiB", most>>20, device>>20)
	}
}

// resident is the memory of this process.
func resident(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// sparse makes a file of count U8 tensors without storing their zeros.
func sparse(t testing.TB, each int64, count int) string {
	t.Helper()
	f := &File{}
	for i := range count {
		f.Tensors = append(f.Tensors, Info{fmt.Sprintf("layers.%d.w", i), U8, []int64{each}, int64(i) * each, each, 0})
	}
	header, err := f.encode(each * int64(count))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sparse.safetensors")
	err = errors.Join(os.WriteFile(path, header, 0o600), os.Truncate(path, int64(len(header))+each*int64(count)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadErrors(t *testing.T) {
	broken := errors.New("the drive is gone")
	collect := func(ctx context.Context, l *Load) (n int, err error) {
		for _, e := range l.Tensors(ctx) {
			if err != nil {
				t.Error("the loop went on after an error")
			}
			err = e
			n++
		}
		return n, err
	}
	t.Run("read fails", func(t *testing.T) {
		m := transformer(t)
		var reads atomic.Int64
		e := hookedEngine{softEngine(t, 64<<20), func(context.Context, []segment) error {
			if reads.Add(1) == 2 {
				return broken
			}
			return nil
		}}
		l, err := newLoad(planFor(t, m, Selection{}, []int{0, 1}, &PlanOptions{MaxRead: 4096}), e, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := collect(t.Context(), l); !errors.Is(err, broken) || !strings.Contains(err.Error(), "loading ") {
			t.Errorf("error %v", err)
		}
		if _, err := collect(t.Context(), l); err == nil || !strings.Contains(err.Error(), "once") {
			t.Errorf("the second loop: %v", err)
		}
	})
	t.Run("file became shorter", func(t *testing.T) {
		m := transformer(t)
		l, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), softEngine(t, 64<<20), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Truncate(m.Files[1].Path, m.Files[1].Size-10); err != nil {
			t.Fatal(err)
		}
		_, err = collect(t.Context(), l)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), m.Files[1].Path) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("cancelled while reading", func(t *testing.T) {
		m := transformer(t)
		ctx, cancel := context.WithCancel(t.Context())
		e := hookedEngine{softEngine(t, 64<<20), func(ctx context.Context, _ []segment) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}}
		l, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), e, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := collect(ctx, l); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("loop left early", func(t *testing.T) {
		m := transformer(t)
		for _, window := range []uint64{0, 32 << 10} {
			l, err := newLoad(planFor(t, m, Selection{}, []int{0}, &PlanOptions{PerTensor: true}), softEngine(t, 64<<20), &LoadOptions{Window: window})
			if err != nil {
				t.Fatal(err)
			}
			for range l.Tensors(t.Context()) {
				break
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("loop panics", func(t *testing.T) {
		l, err := newLoad(planFor(t, transformer(t), Selection{}, []int{0}, nil), softEngine(t, 64<<20), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			for range l.Tensors(t.Context()) {
				panic("body")
			}
		}()
	})
}

// What cannot be prepared fails at once and leaves nothing behind.
func TestNewLoadErrors(t *testing.T) {
	m := transformer(t)
	whole := planFor(t, m, Selection{}, []int{0}, nil)
	each := planFor(t, m, Selection{}, []int{0}, &PlanOptions{PerTensor: true})
	gone := *whole
	gone.Files = []string{m.Files[0].Path, "/nobody.safetensors"}
	tests := []struct {
		name string
		plan *Plan
		opts LoadOptions
		want error
		says string
	}{
		{"no such file", &gone, LoadOptions{}, os.ErrNotExist, "nobody"},
		{"no such GPU", planFor(t, m, Selection{}, []int{7}, nil), LoadOptions{}, nil, "gpu:7"},
		{"window of a plan with one allocation", whole, LoadOptions{Window: 1 << 20}, nil, "one allocation per tensor"},
		{"window too small", each, LoadOptions{Window: 1000}, nil, "exceeds the window (1000 bytes)"},
		{"window larger than the GPU", each, LoadOptions{Window: 1 << 30}, gpu.ErrOutOfMemory, "gpu:0: allocate 1073741824 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			func() {
				l, err := newLoad(tt.plan, softEngine(t, 64<<20), &tt.opts)
				if err == nil {
					l.Close()
					t.Fatal("accepted")
				}
				if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("error %v, want %v, %q", err, tt.want, tt.says)
				}
			}()
		})
	}
}

func TestLoadVerify(t *testing.T) {
	t.Run("parts are not verified and do not say so", func(t *testing.T) {
		m := transformer(t)
		l, err := newLoad(planFor(t, m, Selection{Tensor: Rank{1, 2}}, []int{0}, nil), softEngine(t, 64<<20), &LoadOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for x, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e, _ := m.Lookup(x.Name); x.Verified != slices.Equal(e.Shape, x.Shape) {
				t.Errorf("%s: verified is %v", x.Name, x.Verified)
			}
		}
	})
	t.Run("no manifest", func(t *testing.T) {
		m := transformer(t)
		if err := os.Remove(ManifestPath(m.Files[1].Path)); err != nil {
			t.Fatal(err)
		}
		_, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), softEngine(t, 64<<20), &LoadOptions{Verify: true})
		if !errors.Is(err, ErrNoManifest) {
			t.Errorf("error %v", err)
		}
	})
}

// Out of the GPU and back: what was loaded can be saved and is the same.
func TestSaveFromDevice(t *testing.T) {
	m := transformer(t)
	e := softEngine(t, 64<<20)
	l, err := newLoad(planFor(t, m, Selection{}, []int{0}, nil), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dev, err := e.device(0)
	if err != nil {
		t.Fatal(err)
	}
	var sources []Source
	for x, err := range l.Tensors(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, Source{x.Name, x.Dtype, x.Shape, DeviceBytes(dev, x.Span)})
	}
	path := filepath.Join(t.TempDir(), "out.safetensors")
	if _, err := Save(t.Context(), path, sources, nil); err != nil {
		t.Fatal(err)
	}
	out, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range m.Tensors {
		if !bytes.Equal(readTensor(t, m, entry.Name), readTensor(t, out, entry.Name)) {
			t.Errorf("%s has changed", entry.Name)
		}
	}
	if _, err := DeviceBytes(dev, gpu.Span{Len: 4}).ReadAt(make([]byte, 5), 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading past the end: %v", err)
	}
}

// A file that is another one by the time it is read is refused: its tensors lie
// elsewhere.
func TestLoadOfAChangedFile(t *testing.T) {
	save := func(path string, first, second int64) {
		t.Helper()
		if _, err := Save(t.Context(), path, []Source{source("a", U8, 1, first), source("b", U8, 2, second)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(path string) error
		want   error
	}{
		{"untouched", func(string) error { return nil }, nil},
		{"replaced by one of the same size", func(path string) error {
			save(path, 5000, 3000)
			return os.Chtimes(path, time.Time{}, time.Unix(1e9, 0))
		}, ErrChanged},
		{"replaced by itself", func(path string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			save(path, 3000, 5000)
			return os.Chtimes(path, time.Time{}, st.ModTime())
		}, nil},
		{"written to", func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0}, 4096)
			return errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)))
		}, ErrChanged},
		{"cut short, at the same time", func(path string) error {
			st, err := os.Stat(path)
			if err != nil {
				return err
			}
			return errors.Join(os.Truncate(path, 5000), os.Chtimes(path, time.Time{}, st.ModTime()))
		}, ErrChanged},
		{"removed", os.Remove, os.ErrNotExist},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.safetensors")
			save(path, 3000, 5000)
			m, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			p := planFor(t, m, Selection{}, []int{0}, nil)
			if err := tt.change(path); err != nil {
				t.Fatal(err)
			}
			l, err := newLoad(p, softEngine(t, 16<<20), nil)
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err == nil {
				l.Close()
			}
		})
	}
}
