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
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel"
)

const size = 3 << 20

// A fixture is a software machine with a session on it, and memory.
type fixture struct {
	m *machine.Machine
	s *gdrcopy.Session
	d gpu.Device
	a gpu.Addr
}

// backends are the two ways: with GDRCopy's module loaded, and without.
var backends = map[string]bool{"gdrdrv": true, "BAR1": false}

// both runs a test on each backend.
func both(t *testing.T, kind gpu.Kind, test func(*testing.T, fixture)) {
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

// open makes a fixture. At the end nothing of its machine may be in use.
func open(t *testing.T, kind gpu.Kind, loaded bool) fixture {
	t.Helper()
	cfg := soft.Config{Memory: 32 << 20, Scatter: true}
	if !loaded {
		cfg.Without = []string{"gdrdrv"}
	}
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	d, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Alloc(kind, size, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := gdrcopy.Open(m, d)
	if err != nil {
		t.Fatal(err)
	}
	w := fixture{m, s, d, a}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), w.soft().InUse(), d.Free(a), d.Close(), m.Close()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w fixture) soft() *soft.Machine {
	m, _ := soft.Of(w.m.GPU)
	return m
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

func copies(t *testing.T, w fixture) {
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

func states(t *testing.T, w fixture) {
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
	_, err := gdrcopy.Open(dev.With(&machine.Machine{}, dev.Of(kernel.New(fstest.MapFS{}))), w.d)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/dev/nvidiactl") || !strings.Contains(err.Error(), "modprobe gdrdrv") {
		t.Errorf("without a driver: %v", err)
	}
}

// A mute node opens and answers nothing.
type mute struct{}

func (mute) Ioctl(uintptr, unsafe.Pointer) error          { return syscall.ENOTTY }
func (mute) Mmap(int64, int, int) (kernel.Mapping, error) { return nil, syscall.ENODEV }
func (mute) Release()                                     {}

// A module that does not answer is passed over, and the session says so.
func TestModuleThatDoesNotAnswer(t *testing.T) {
	w := open(t, gpu.KindVirtual, false)
	k := w.soft().Kernel()
	if err := k.Register("/dev/gdrdrv", func() (kernel.File, error) { return mute{}, nil }); err != nil {
		t.Fatal(err)
	}
	files := k.OpenFiles()
	s, err := gdrcopy.Open(w.m, w.d)
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Info(); !strings.Contains(i.Backend, "BAR1") || !strings.Contains(i.Declined, "gdrdrv version") {
		t.Errorf("session is %+v", i)
	}
	if err := s.Close(); err != nil || k.OpenFiles() != files {
		t.Errorf("close: %v, %d files are open, %d were", err, k.OpenFiles(), files)
	}
}

func TestImport(t *testing.T) {
	w := open(t, gpu.KindVirtual, false)
	d, a := w.d, w.a
	f, err := d.Export(a, size, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := gdrcopy.Import(w.m, d.Info().PCI, f, 1000)
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

func concurrentUse(t *testing.T, w fixture) {
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

func (w *wrong) Describe() gdrcopy.SessionInfo                { return gdrcopy.SessionInfo{Backend: "wrong"} }
func (w *wrong) Pin(gpu.Addr, uint64) (gdrcopy.Pinned, error) { return w, nil }
func (w *wrong) Close() error                                 { w.closed++; return nil }
func (w *wrong) Info() gdrcopy.Info                           { return gdrcopy.Info{} }
func (w *wrong) Revoked() (bool, error)                       { return false, nil }
func (w *wrong) Unpin() error                                 { w.unpinned++; return nil }
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
