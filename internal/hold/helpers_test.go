package hold

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/tensor"
)

func TestMain(m *testing.M) {
	// Streams of the software GPU live as long as the machine, and machines as
	// long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/culvert-io/culvert/soft/gpu.(*stream).run"))
}

// A world is a software machine with its GPUs opened.
type world struct {
	driver  gpu.Driver
	devices map[int]gpu.Device
}

func newWorld(t testing.TB, cfg soft.Config) *world {
	t.Helper()
	env, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	env.Zero = false // poison finds what relies on zeros
	cfg.GPUs, cfg.Memory, cfg.Heap = max(cfg.GPUs, 1), 64<<20, env.Heap
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{m.GPU, map[int]gpu.Device{}}
	t.Cleanup(func() {
		for _, d := range w.devices {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) Devices() ([]gpu.Info, error) { return w.driver.Devices() }

func (w *world) Device(i int) (gpu.Device, error) {
	if d, ok := w.devices[i]; ok {
		return d, nil
	}
	d, err := w.driver.Open(i)
	if err == nil {
		w.devices[i] = d
	}
	return d, err
}

func (w *world) free(t testing.TB) (sum uint64) {
	t.Helper()
	for _, d := range w.devices {
		free, _, err := d.MemInfo()
		if err != nil {
			t.Fatal(err)
		}
		sum += free
	}
	return sum
}

// model puts random tensors into one allocation for each GPU, and returns their
// bytes too.
func (w *world) model(t testing.TB, kind gpu.Kind, gpus int) (*Model, [][]byte) {
	t.Helper()
	m := &Model{Name: "model.safetensors", Metadata: map[string]string{"format": "pt"}}
	var want [][]byte
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range gpus {
		dev, err := w.Device(i)
		if err != nil {
			t.Fatal(err)
		}
		const size = 5 << 20 // more than a chunk of a copy
		base, err := dev.Alloc(kind, size, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dev.Free(base) }) // some tests have freed it
		off := uint64(0)
		for j, n := range []int64{3 << 20, 1000, 0, 1} {
			data := make([]byte, n)
			for k := range data {
				data[k] = byte(rng.Uint32())
			}
			span := gpu.Span{Dev: i, Base: base, Off: off, Len: uint64(n)}
			if n > 0 {
				if err := dev.CopyIn(span.Addr(), data); err != nil {
					t.Fatal(err)
				}
			}
			m.Tensors = append(m.Tensors, tensor.Tensor{Name: fmt.Sprintf("t%d.%d", i, j), Dtype: "U8", Shape: []int64{n}, Span: span})
			want = append(want, data)
			off += (uint64(n) + 255) &^ 255
		}
	}
	return m, want
}

// check compares an attached model with what was held.
func (w *world) check(t testing.TB, a *Attached, m *Model, want [][]byte) {
	t.Helper()
	if a.Name != m.Name || a.Metadata["format"] != "pt" || len(a.Tensors) != len(m.Tensors) {
		t.Fatalf("attached %q, %v, %d tensors", a.Name, a.Metadata, len(a.Tensors))
	}
	for i := range m.Tensors {
		found := false
		for _, got := range a.Tensors {
			if got.Name != m.Tensors[i].Name {
				continue
			}
			found = true
			if got.Dtype != m.Tensors[i].Dtype || got.Span.Len != m.Tensors[i].Span.Len || got.Span.Dev != m.Tensors[i].Span.Dev {
				t.Errorf("%s: %+v", got.Name, got)
			}
			if !bytes.Equal(w.read(t, got.Span), want[i]) {
				t.Errorf("%s has other bytes", got.Name)
			}
		}
		if !found {
			t.Errorf("%s is missing", m.Tensors[i].Name)
		}
	}
}

func (w *world) read(t testing.TB, s gpu.Span) []byte {
	t.Helper()
	data := make([]byte, s.Len)
	if s.Len == 0 {
		return data
	}
	dev, err := w.Device(s.Dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.CopyOut(data, s.Addr()); err != nil {
		t.Fatal(err)
	}
	return data
}

// serve serves until the test ends, and returns the socket.
func serve(t testing.TB, s *Server) string {
	t.Helper()
	path := socket(t)
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := contextOf(t)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return path
}

// socket is a path that is short enough for one.
func socket(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hold")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
