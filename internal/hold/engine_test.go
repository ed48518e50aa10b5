package hold

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/tensor"
)

// openDriver opens a software machine with one GPU.
func openDriver(t *testing.T) *cufile.Driver {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Memory = 64 << 20
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(drv.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return drv
}

// saved is a model of tensors with these sizes, as Save arranges them.
func saved(t *testing.T, sizes ...int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	var list []tensor.Source
	for i, n := range sizes {
		data := bytes.Repeat([]byte{byte(i + 1), 7, 3}, int(n))[:n]
		list = append(list, tensor.Source{Name: string(rune('a' + i)), Dtype: tensor.U8, Shape: []int64{n}, Data: bytes.NewReader(data)})
	}
	if _, err := tensor.Save(t.Context(), path, list, nil); err != nil {
		t.Fatal(err)
	}
	return path
}

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
		opts  tensor.PlanOptions
		kind  gpu.Kind
		route route.ID
		host  int64
	}{
		{name: "whole blocks", sizes: []int64{4 << 20, 1 << 20, 64 << 10}, route: route.NVFS},
		{name: "memory for others", sizes: []int64{4 << 20, 1 << 20}, kind: gpu.KindVirtual, route: route.NVFS},
		{name: "in small reads", sizes: []int64{4 << 20, 1 << 20}, opts: tensor.PlanOptions{MaxRead: 100_000}, route: route.NVFS},
		{name: "one allocation each", sizes: []int64{4 << 20, 1 << 20}, opts: tensor.PlanOptions{Alloc: tensor.PerTensor}, route: route.NVFS},
		{name: "a ragged end", sizes: []int64{4 << 20, 1<<20 + 1000}, route: route.NVFS, host: 1000},
		{name: "in the middle of a block", sizes: []int64{4 << 20, 1<<20 + 512, 1<<20 + 512}, only: []string{"a", "c"}, route: route.NVFS, host: 3584 + 1024},
		{name: "turned off", nvfs: "0", sizes: []int64{4 << 20, 1 << 20}, route: route.Ring, host: 5 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CULVERT_NVFS", tt.nvfs)
			drv := openDriver(t)
			path := saved(t, tt.sizes...)
			if tt.route == route.NVFS && best(t, drv, path) != route.NVFS {
				t.Skip("needs a directory for temporary files that takes O_DIRECT")
			}
			m, err := tensor.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			p, err := tensor.NewPlan(m, []tensor.Target{{Selection: tensor.Selection{Only: tt.only}}}, &tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			engine := NewEngine(tensor.Cufile(drv), p)
			l, err := tensor.NewLoad(p, engine, &tensor.LoadOptions{Kind: tt.kind, Verify: true})
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
			if err := engine.Settle(); err != nil {
				t.Error(err)
			}
			for _, a := range bases {
				if _, err := drv.Buffer(a); err == nil {
					t.Errorf("%v is still registered", a)
				}
			}
		})
	}
}

// Only a drive that fills memory itself is worth registering it for.
func TestRegistersForADrive(t *testing.T) {
	large := &tensor.Plan{Buffers: []tensor.Buffer{{Size: 8 << 30}}, Reads: []tensor.Read{{Len: 64 << 20, Count: 1}}}
	for _, device := range []int{0, 1} {
		fake := &directEngine{}
		e := NewEngine(fake, large)
		if _, err := e.Open("x"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Register(gpu.Span{Dev: device}); err != nil {
			t.Fatal(err)
		}
		if want := device == 1; fake.registered != want {
			t.Errorf("gpu:%d: registered %v, want %v", device, fake.registered, want)
		}
	}
}

// A directEngine has a drive beside GPU 1.
type directEngine struct {
	tensor.Engine
	registered bool
}

func (e *directEngine) Open(string) (tensor.Reader, error) { return directReader{}, nil }

func (e *directEngine) Register(gpu.Span) (io.Closer, error) {
	e.registered = true
	return io.NopCloser(nil), nil
}

type directReader struct{ tensor.Reader }

func (directReader) Direct(device int) bool { return device == 1 }
