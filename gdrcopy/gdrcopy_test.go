package gdrcopy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

const size = 3 << 20

// open makes a software machine with a session on it, and memory.
func open(t *testing.T, kind gpu.Kind) (*gdrcopy.Session, nvrm.Device, gpu.Addr, *kernel.OS) {
	t.Helper()
	model := softgpu.H200()
	model.Memory = 32 << 20
	drv, err := softgpu.New(softgpu.Config{Models: []softgpu.Model{model}, Scatter: true})
	if err != nil {
		t.Fatal(err)
	}
	o := kernel.New(fstest.MapFS{})
	twin, err := nvrm.New(o, drv, "")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	d := twin.Device(raw)
	a, err := d.Alloc(kind, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gdrcopy.Open(d, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if n := twin.Objects() + twin.Mappings() + o.OpenFiles(); n != 0 {
			t.Errorf("%d things are left in the kernel", n)
		}
		if err := errors.Join(d.Free(a), d.Close(), twin.Close(), drv.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, d, a, o
}

func random(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestCopies(t *testing.T) {
	for _, kind := range []gpu.Kind{gpu.KindVirtual, gpu.KindDevice} {
		t.Run(kind.String(), func(t *testing.T) {
			s, d, a, _ := open(t, kind)
			b, err := s.Pin(a, size)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Map(); err != nil {
				t.Fatal(err)
			}
			want := random(size, 1)
			if err := b.CopyTo(0, want); err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 2000 {
				n := r.IntN(5000)
				off := uint64(r.IntN(size - n))
				part := random(n, uint64(i))
				if err := b.CopyTo(off, part); err != nil {
					t.Fatal(err)
				}
				copy(want[off:], part)
				got := make([]byte, n)
				from := uint64(r.IntN(size - n))
				if err := b.CopyFrom(got, from); err != nil || !bytes.Equal(got, want[from:from+uint64(n)]) {
					t.Fatalf("%d bytes at %d differ, %v", n, from, err)
				}
			}
			got := make([]byte, size)
			if err := d.CopyOut(got, a); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the GPU has other bytes, %v", err)
			}
		})
	}
}

func TestStates(t *testing.T) {
	s, _, a, _ := open(t, gpu.KindVirtual)
	b, err := s.Pin(a+100, 5000)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]byte, 1)
	wantErr := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	wantInfo := func(mapped bool, typ gdrcopy.MappingType) {
		t.Helper()
		got, err := b.Info()
		want := gdrcopy.Info{VA: a, MappedSize: 8192, PageSize: 4096, Mapped: mapped, Type: typ}
		if err != nil || got != want {
			t.Errorf("info is %+v, %v, want %+v", got, err, want)
		}
	}
	wantInfo(false, gdrcopy.MappingNone)
	wantErr("unmap before map", b.Unmap(), syscall.EINVAL)
	wantErr("copy before map", b.CopyTo(0, one), syscall.EINVAL)
	for range 2 {
		wantErr("map", b.Map(), nil)
		wantInfo(true, gdrcopy.MappingWC)
		wantErr("second map", b.Map(), syscall.EAGAIN)
		wantErr("copy", b.CopyTo(4999, one), nil)
		wantErr("copy of nothing", b.CopyTo(5000, nil), nil)
		wantErr("copy past the end", b.CopyTo(5000, one), syscall.EINVAL)
		wantErr("copy from far out", b.CopyFrom(one, ^uint64(0)), syscall.EINVAL)
		wantErr("unmap", b.Unmap(), nil)
	}
	wantErr("map", b.Map(), nil)
	wantErr("unpin while mapped", b.Unpin(), nil)
	wantErr("second unpin", b.Unpin(), nil)
	wantErr("map after unpin", b.Map(), os.ErrClosed)
	wantErr("copy after unpin", b.CopyFrom(one, 0), os.ErrClosed)
	_, err = b.Info()
	wantErr("info after unpin", err, os.ErrClosed)
	_, err = s.Pin(a, 0)
	wantErr("pin of nothing", err, gpu.ErrInvalidValue)
	b, err = s.Pin(a, 4096)
	wantErr("pin", errors.Join(err, b.Map()), nil)
	wantErr("close", errors.Join(s.Close(), s.Close()), nil)
	wantErr("copy after close", b.CopyTo(0, one), os.ErrClosed)
	_, err = s.Pin(a, 4096)
	wantErr("pin after close", err, os.ErrClosed)
}

func TestNoBackend(t *testing.T) {
	_, d, _, _ := open(t, gpu.KindVirtual)
	_, err := gdrcopy.Open(d, kernel.New(fstest.MapFS{}))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/dev/nvidiactl") {
		t.Errorf("without a driver: %v", err)
	}
}

func TestImport(t *testing.T) {
	_, d, a, o := open(t, gpu.KindVirtual)
	f, err := d.Export(a, size, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := gdrcopy.Import(o, d.Info().PCI, f, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.CopyTo(0, []byte("filled")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 6)
	if err := errors.Join(d.CopyOut(got, a), b.Unpin()); err != nil || string(got) != "filled" {
		t.Errorf("the GPU has %q, %v", got, err)
	}
	if _, err := gdrcopy.Import(nil, d.Info().PCI, f, 1000); err == nil {
		t.Error("this computer's driver has imported memory of a software GPU")
	}
}

func TestConcurrentUse(t *testing.T) {
	s, _, a, _ := open(t, gpu.KindVirtual)
	b, err := s.Pin(a, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Map(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			mine := random(4096, uint64(i))
			got := make([]byte, 4096)
			for j := range 300 {
				off := uint64((i*100+j%100)*4096) % (size - 4096)
				if err := errors.Join(b.CopyTo(off, mine), b.CopyFrom(got, off)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestInfoAsJSON(t *testing.T) {
	b, err := json.Marshal(gdrcopy.Info{VA: 4096, MappedSize: 4096, PageSize: 4096, Mapped: true, Type: gdrcopy.MappingWC})
	if want := `{"va":4096,"mapped_size":4096,"page_size":4096,"mapped":true,"mapping_type":"WC"}`; err != nil || string(b) != want {
		t.Errorf("JSON is %s, %v, want %s", b, err, want)
	}
	if got := fmt.Sprint(gdrcopy.MappingNone, gdrcopy.MappingCaching, gdrcopy.MappingDevice, gdrcopy.MappingType(7)); got != "NONE CACHING DEVICE MappingType(7)" {
		t.Errorf("names are %s", got)
	}
}

// A wrong backend maps less than it was asked for.
type wrong struct{ unmapped, unpinned, closed int }

func (w *wrong) Name() string                              { return "wrong" }
func (w *wrong) Pin(gpu.Addr, uint64) (gdrcopy.Pin, error) { return w, nil }
func (w *wrong) Close() error                              { w.closed++; return nil }
func (w *wrong) Info() gdrcopy.Info                        { return gdrcopy.Info{} }
func (w *wrong) Unpin() error                              { w.unpinned++; return nil }
func (w *wrong) Map() (mem []byte, unmap func() error, e error) {
	return make([]byte, 10), func() error { w.unmapped++; return syscall.EIO }, nil
}

func TestBackendFailures(t *testing.T) {
	w := &wrong{}
	s := gdrcopy.New(w)
	if s.Backend() != "wrong" {
		t.Errorf("backend is %q", s.Backend())
	}
	b, err := s.Pin(0, 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Map(); err == nil || w.unmapped != 1 {
		t.Errorf("short mapping: %v, unmapped %d times", err, w.unmapped)
	}
	b, err = s.Pin(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Map(); err != nil {
		t.Fatal(err)
	}
	if err := b.Unpin(); !errors.Is(err, syscall.EIO) || w.unpinned != 0 {
		t.Errorf("unpin of what cannot be unmapped: %v, unpinned %d times", err, w.unpinned)
	}
	if err := b.Map(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("map of a lost buffer: %v", err)
	}
	if err := s.Close(); err != nil || w.closed != 1 || w.unpinned != 1 {
		t.Errorf("close: %v, closed %d times, unpinned %d times, want the buffer that was not mapped", err, w.closed, w.unpinned)
	}
}
