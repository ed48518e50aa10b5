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
	"unsafe"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/machine"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
	"github.com/culvert-io/culvert/soft/kernel/gdrdrv"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

const size = 3 << 20

// A world is a software machine with a session on it, and memory.
type world struct {
	s *gdrcopy.Session
	d nvrm.Device
	a gpu.Addr
	o *kernel.OS
}

// backends are the two ways: with GDRCopy's module loaded, and without.
var backends = map[string]bool{"gdrdrv": true, "BAR1": false}

// both runs a test on each backend.
func both(t *testing.T, kind gpu.Kind, test func(*testing.T, world)) {
	for name, loaded := range backends {
		t.Run(name, func(t *testing.T) {
			w := open(t, kind, loaded)
			if got := w.s.Info(); !strings.Contains(got.Backend, name) || loaded != (got.Declined == "") {
				t.Errorf("session is %+v", got)
			}
			test(t, w)
		})
	}
}

// open makes a world. What is left in its kernel at the end is an error.
func open(t *testing.T, kind gpu.Kind, loaded bool) world {
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
	unload := func() error { return nil }
	if loaded {
		unload = load(t, o, drv)
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
	s, err := gdrcopy.Open(on(o), d)
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
		if err := errors.Join(unload(), d.Free(a), d.Close(), twin.Close(), drv.Close()); err != nil {
			t.Error(err)
		}
	})
	return world{s, d, a, o}
}

func on(o dev.OS) *machine.Machine { return dev.With(&machine.Machine{Soft: true}, o) }

// load loads gdrdrv. Unloading it fails when pins are left.
func load(t *testing.T, o *kernel.OS, drv *softgpu.Driver) (unload func() error) {
	t.Helper()
	root, err := pcie.New(pcie.Config{}).AddHostBridge(pcie.ForwardOwn).AddRootPort("0000:00:01.0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := root.AddFunction("0000:0f:00.0")
	if err != nil {
		t.Fatal(err)
	}
	rm, err := p2p.NewRM(p2p.Config{GPUs: drv, Ports: []*pcie.Function{port}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := gdrdrv.New(o, gdrdrv.Config{RM: rm})
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		m.Close()
		return rm.Close()
	}
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
		t.Run(kind.String(), func(t *testing.T) { both(t, kind, copies) })
	}
}

func copies(t *testing.T, w world) {
	// Neither the first byte nor the last lies at a border of a page.
	const first, n = 70001, size - 70001 - 4321
	b, err := w.s.Pin(w.a+first, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Map(); err != nil {
		t.Fatal(err)
	}
	all := random(size, 9)
	if err := w.d.CopyIn(w.a, all); err != nil {
		t.Fatal(err)
	}
	want := all[first : first+n]
	copy(want, random(n, 1))
	if err := b.CopyTo(0, want); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		k := r.IntN(5000)
		off := uint64(r.IntN(n - k))
		part := random(k, uint64(i))
		if err := b.CopyTo(off, part); err != nil {
			t.Fatal(err)
		}
		copy(want[off:], part)
		got := make([]byte, k)
		from := uint64(r.IntN(n - k))
		if err := b.CopyFrom(got, from); err != nil || !bytes.Equal(got, want[from:from+uint64(k)]) {
			t.Fatalf("%d bytes at %d differ, %v", k, from, err)
		}
	}
	got := make([]byte, size)
	if err := w.d.CopyOut(got, w.a); err != nil || !bytes.Equal(got, all) {
		t.Errorf("the GPU has other bytes, %v", err)
	}
}

func TestStates(t *testing.T) { both(t, gpu.KindVirtual, states) }

func states(t *testing.T, w world) {
	s, a, page := w.s, w.a, uint64(4096)
	if strings.HasPrefix(s.Info().Backend, "gdrdrv") {
		page = 65536
	}
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
		want := gdrcopy.Info{VA: a, MappedSize: (5100 + page - 1) / page * page, PageSize: uint32(page), Mapped: mapped, Type: typ}
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
	_, err = s.Pin(a+5, 0)
	wantErr("pin of nothing in a page", err, gpu.ErrInvalidValue)
	if _, err := s.Pin(a+5, ^uint64(0)); err == nil {
		t.Error("a range that wraps around was pinned")
	}
	if _, err := s.Pin(a, 32<<20); err == nil {
		t.Error("more than the allocation was pinned")
	}
	b, err = s.Pin(a, 4096)
	wantErr("pin", errors.Join(err, b.Map()), nil)
	wantErr("close", errors.Join(s.Close(), s.Close()), nil)
	wantErr("copy after close", b.CopyTo(0, one), os.ErrClosed)
	_, err = s.Pin(a, 4096)
	wantErr("pin after close", err, os.ErrClosed)
}

func TestNoBackend(t *testing.T) {
	w := open(t, gpu.KindVirtual, false)
	_, err := gdrcopy.Open(on(kernel.New(fstest.MapFS{})), w.d)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/dev/nvidiactl") || !strings.Contains(err.Error(), "modprobe gdrdrv") {
		t.Errorf("without a driver: %v", err)
	}
}

// A mute node opens and answers nothing.
type mute struct{}

func (mute) Ioctl(uintptr, unsafe.Pointer) error       { return syscall.ENOTTY }
func (mute) Mmap(int64, int, int) (dev.Mapping, error) { return nil, syscall.ENODEV }
func (mute) Release()                                  {}

// A module that does not answer is passed over, and the session says so.
func TestModuleThatDoesNotAnswer(t *testing.T) {
	w := open(t, gpu.KindVirtual, false)
	if err := w.o.Register("/dev/gdrdrv", func() (kernel.File, error) { return mute{}, nil }); err != nil {
		t.Fatal(err)
	}
	files := w.o.OpenFiles()
	s, err := gdrcopy.Open(on(w.o), w.d)
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Info(); !strings.Contains(i.Backend, "BAR1") || !strings.Contains(i.Declined, "gdrdrv version") {
		t.Errorf("session is %+v", i)
	}
	if err := s.Close(); err != nil || w.o.OpenFiles() != files {
		t.Errorf("close: %v, %d files are open, %d were", err, w.o.OpenFiles(), files)
	}
}

func TestImport(t *testing.T) {
	w := open(t, gpu.KindVirtual, false)
	d, a, o := w.d, w.a, w.o
	f, err := d.Export(a, size, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := gdrcopy.Import(on(o), d.Info().PCI, f, 1000)
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

func TestConcurrentUse(t *testing.T) { both(t, gpu.KindVirtual, concurrentUse) }

func concurrentUse(t *testing.T, w world) {
	b, err := w.s.Pin(w.a, size)
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
	if i := s.Info(); i != (gdrcopy.SessionInfo{Backend: "wrong"}) {
		t.Errorf("session is %+v", i)
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
