package tensor

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// best is the best route between a file and the GPU.
func best(t *testing.T, drv *cufile.Driver, path string) route.ID {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := drv.Register(f)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := h.Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	return p.Best()
}

// A load goes straight from the drive into the memory where the tensors stay,
// wherever the machine has such a way and the file lies so that it can be taken.
func TestDirectLoad(t *testing.T) {
	for _, tt := range []struct {
		name  string
		nvfs  string // CULVERT_NVFS
		sizes []int64
		only  []string
		opts  PlanOptions
		kind  gpu.Kind
		route route.ID
		host  int64
	}{
		{name: "whole blocks", sizes: []int64{4 << 20, 1 << 20, 64 << 10}, route: route.NVFS},
		{name: "memory for others", sizes: []int64{4 << 20, 1 << 20}, kind: gpu.KindVirtual, route: route.NVFS},
		{name: "in small reads", sizes: []int64{4 << 20, 1 << 20}, opts: PlanOptions{MaxRead: 100_000}, route: route.NVFS},
		{name: "one allocation each", sizes: []int64{4 << 20, 1 << 20}, opts: PlanOptions{PerTensor: true}, route: route.NVFS},
		{name: "a ragged end", sizes: []int64{4 << 20, 1<<20 + 1000}, route: route.NVFS, host: 1000},
		{name: "in the middle of a block", sizes: []int64{4 << 20, 1<<20 + 512, 1<<20 + 512}, only: []string{"a", "c"}, route: route.NVFS, host: 3584 + 1024},
		{name: "turned off", nvfs: "0", sizes: []int64{4 << 20, 1 << 20}, route: route.Ring, host: 5 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CULVERT_NVFS", tt.nvfs)
			drv, err := cufile.Open(softMachine(t, 64<<20))
			if err != nil {
				t.Fatal(err)
			}
			defer drv.Close()
			path := filepath.Join(t.TempDir(), "model.safetensors")
			var list []Source
			for i, n := range tt.sizes {
				list = append(list, source(string(rune('a'+i)), U8, uint64(i), n))
			}
			if _, err := Save(t.Context(), path, list, nil); err != nil {
				t.Fatal(err)
			}
			if tt.route == route.NVFS && best(t, drv, path) != route.NVFS {
				t.Skip("needs a directory for temporary files that takes O_DIRECT")
			}
			m, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			p, err := NewPlan(m, []Selection{{Only: tt.only}}, &tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			l, err := NewLoad(p, drv, &LoadOptions{Kind: tt.kind, Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var bases []gpu.Addr
			for x, err := range l.Tensors(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if !x.Verified {
					t.Errorf("%s was not verified", x.Name)
				}
				bases = append(bases, x.Span.Base)
			}
			r := l.Report()
			if len(r.Files) != 1 || r.Files[0].Receipt.Route != tt.route || r.Files[0].Receipt.Host.Bytes != tt.host {
				t.Errorf("the report: %v, want %v and %d bytes through the host", &r.Files[0].Receipt, tt.route, tt.host)
			}
			for _, a := range bases {
				if _, err := drv.Buffer(a); err == nil {
					t.Errorf("%v is still registered", a)
				}
			}
		})
	}
}

func TestWorthRegistering(t *testing.T) {
	large := Read{Len: 64 << 20, Count: 1}
	small := Read{Len: 4 << 10, Count: 3000}
	for _, tt := range []struct {
		name   string
		size   uint64
		reads  []Read
		direct bool
		want   bool
	}{
		{"nothing to gain", 1 << 20, []Read{large}, false, false},
		{"nothing to lose", 1 << 20, []Read{large, {Len: 1, Count: 1}}, false, true},
		{"few small reads in much memory", 8 << 30, []Read{large, small}, false, false},
		{"many small reads", 2 << 30, []Read{large, small}, false, true},
		{"a drive fills the memory", 8 << 30, []Read{large}, true, true},
	} {
		p := &Plan{Buffers: []Buffer{{Size: tt.size}}, Reads: tt.reads}
		if got := worthRegistering(p, tt.direct); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// Memory is registered on the GPU that a drive can fill, and only until the loop
// over the tensors has ended. So long the files stay open.
func TestRegistration(t *testing.T) {
	m := savedModel(t, source("large", U8, 1, 1<<20))
	soft := softEngine(t, 64<<20)
	for _, device := range []int{0, 1} {
		e := &directEngine{engine: soft}
		l, err := newLoad(planFor(t, m, Selection{}, []int{device}, nil), e, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if device == 1 {
			want = 1
		}
		if e.registered != want || soft.(*countingEngine).files.Load() != 1 {
			t.Errorf("gpu:%d: %d registrations and %d files, want %d and 1", device, e.registered, soft.(*countingEngine).files.Load(), want)
		}
		for _, err := range l.Tensors(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if e.registered != 0 || soft.(*countingEngine).files.Load() != 0 {
			t.Errorf("gpu:%d: %d registrations and %d files after the transfer", device, e.registered, soft.(*countingEngine).files.Load())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A directEngine has a drive beside GPU 1.
type directEngine struct {
	engine
	registered int
}

func (e *directEngine) open(path string) (reader, error) {
	r, err := e.engine.open(path)
	return directReader{r}, err
}

func (e *directEngine) register(gpu.Span) (io.Closer, error) {
	e.registered++
	return e, nil
}

func (e *directEngine) Close() error {
	e.registered--
	return nil
}

type directReader struct{ reader }

func (directReader) direct(device int) bool { return device == 1 }

// savedModel saves tensors and opens the file.
func savedModel(t testing.TB, tensors ...Source) *Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if _, err := Save(t.Context(), path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
