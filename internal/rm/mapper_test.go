package rm_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/rm"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
	"github.com/culvert-io/culvert/soft/kernel"
)

// TestWindow maps ranges of both kinds of memory, whole and in part, and looks
// from both sides.
func TestWindow(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	mapper := m.mapper(t, d)
	for _, c := range []struct {
		kind   gpu.Kind
		size   uint64
		method rm.Method
	}{
		{gpu.KindVirtual, 4 << 20, rm.MethodImport},
		{gpu.KindDevice, 3 << 20, rm.MethodDuplicate},
		{gpu.KindDevice, 20_000, rm.MethodDuplicate}, // shares its block
		{gpu.KindDevice, 512, rm.MethodDuplicate},
		{gpu.KindDevice, 3, rm.MethodDuplicate},
	} {
		t.Run(fmt.Sprintf("%v/%d", c.kind, c.size), func(t *testing.T) {
			a := alloc(t, d, c.kind, c.size)
			whole := content(t, d, a, int(c.size))
			for _, r := range [][2]uint64{{0, c.size}, {c.size / 3, c.size / 2}, {c.size - 1, 1}} {
				off, n := r[0], r[1]
				w, err := mapper.Map(a+gpu.Addr(off), n)
				if err != nil {
					t.Fatal(err)
				}
				if w.Method() != c.method || w.Base() != a+gpu.Addr(off) || w.Len() != int(n) {
					t.Errorf("window by %v at %v, %d bytes", w.Method(), w.Base(), w.Len())
				}
				if !bytes.Equal(content(t, d, a, int(c.size)), whole) {
					t.Error("mapping has changed the memory")
				}
				got := make([]byte, n)
				if err := loadFrom(w, got, 0); err != nil || !bytes.Equal(got, whole[off:off+n]) {
					t.Errorf("the window shows other bytes than the GPU: %v", err)
				}
				fresh := pattern(int(n), 4711)
				if err := storeTo(w, 0, fresh); err != nil {
					t.Fatal(err)
				}
				copy(whole[off:], fresh)
				if !bytes.Equal(content(t, d, a, int(c.size)), whole) {
					t.Error("the GPU has other bytes than were stored")
				}
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestPreadIntoWindow(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 1<<20)
	w, err := m.mapper(t, d).Map(a, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := pattern(300_000, 1)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	n, err := f.ReadAt(w.Bytes()[777:777+len(data)-5], 5)
	if err != nil || n != len(data)-5 {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	if !bytes.Equal(content(t, d, a+777, n), data[5:]) {
		t.Error("the GPU has other bytes than the file")
	}
}

// decline asserts that err is an *Unavailable for a test.
func decline(t *testing.T, err error, test string) *rm.Unavailable {
	t.Helper()
	u, ok := errors.AsType[*rm.Unavailable](err)
	if !ok {
		t.Fatalf("error is %v, want an *Unavailable for %q", err, test)
	}
	if u.Test != test || u.Err == nil || !strings.Contains(err.Error(), u.Err.Error()) {
		t.Errorf("error is %v (test %q), want one for %q", err, u.Test, test)
	}
	return u
}

func TestNoDriver(t *testing.T) {
	m := newMachine(t, config{})
	mapper := newMapper(t, dev.Of(kernel.New(fstest.MapFS{})), m.device(t, 0), rm.NoBudget)
	err := mapper.Probe()
	u := decline(t, err, "device node")
	if !errors.Is(err, fs.ErrNotExist) || u.Fix == "" {
		t.Errorf("no driver: %v", err)
	}
}

func TestUnknownVersions(t *testing.T) {
	for _, version := range []string{"610.10.01", "530.41.03", "not a version"} {
		m := newMachine(t, config{version: version})
		mapper := m.mapper(t, m.device(t, 0))
		err := mapper.Probe()
		decline(t, err, "driver version")
		if e, ok := errors.AsType[*nvrm.UnknownVersionError](err); !ok || e.Version != version {
			t.Errorf("version %s: %v", version, err)
		}
		m.idle(t)
	}
}

func TestKnownVersions(t *testing.T) {
	for _, f := range nvrm.Families {
		m := newMachine(t, config{version: f.Last})
		if err := m.mapper(t, m.device(t, 0)).Probe(); err != nil {
			t.Errorf("version %s: %v", f.Last, err)
		}
	}
}

// The GPUs of a process need not be numbered as the kernel does.
func TestSeveralGPUs(t *testing.T) {
	m := newMachine(t, config{gpus: 3})
	for i := range 3 {
		d := m.device(t, i)
		a := alloc(t, d, gpu.KindVirtual, 2<<20)
		w, err := m.mapper(t, d).Map(a, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if err := storeTo(w, 0, []byte{byte(i)}); err != nil {
			t.Error(err)
		}
		if got := content(t, d, a, 1)[0]; got != byte(i) {
			t.Errorf("gpu %d has %d", i, got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := m.mapper(t, m.device(t, 0)).Map(alloc(t, m.device(t, 1), gpu.KindVirtual, 4096), 4096)
	decline(t, err, "GPU")
	file, err := m.device(t, 0).Export(alloc(t, m.device(t, 0), gpu.KindVirtual, 4096), 4096, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	_, err = rm.ImportFile(dev.Of(m.os), "0000:99:00.0", file, 4096)
	decline(t, err, "list of GPUs")
}

func TestRefusals(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	mapper := m.mapper(t, d)
	_, err := mapper.Map(alloc(t, d, gpu.KindHost, 4096), 4096)
	decline(t, err, "kind of memory")
	_, err = mapper.Map(12345, 10)
	decline(t, err, "kind of memory")
	a := alloc(t, d, gpu.KindVirtual, 2<<20)
	for _, r := range []struct {
		a gpu.Addr
		n uint64
	}{{a, 0}, {a, 2<<20 + 1}, {a + 1, 2 << 20}, {a, ^uint64(0)}} {
		if _, err := mapper.Map(r.a, r.n); !errors.Is(err, gpu.ErrInvalidValue) {
			t.Errorf("map %v+%d: %v", r.a, r.n, err)
		}
	}
	plain := alloc(t, d, gpu.KindDevice, 4096)
	_, err = m.mapper(t, d.Device).Map(plain, 4096) // without IPC handles
	decline(t, err, "IPC handle")
}

func TestBudget(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 2<<20)
	mapper := newMapper(t, dev.Of(m.os), d, 3*4096)
	w, err := mapper.Map(a+100, 4096) // two pages
	if err != nil {
		t.Fatal(err)
	}
	if n := mapper.Mapped(); n != 8192 {
		t.Errorf("%d bytes mapped, want 8192", n)
	}
	_, err = mapper.Map(a, 4097)
	if u := decline(t, err, "budget"); u.Fix == "" {
		t.Error("a full budget without a remedy")
	}
	v, err := mapper.Map(a, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), v.Close(), v.Close()); err != nil {
		t.Error(err)
	}
}

func TestHeapMemoryDeclines(t *testing.T) {
	m := newMachine(t, config{backing: softgpu.Heap})
	d := m.device(t, 0)
	_, err := m.mapper(t, d).Map(alloc(t, d, gpu.KindVirtual, 4096), 4096)
	decline(t, err, "mapping")
	if !errors.Is(err, nvrm.NV_ERR_NOT_SUPPORTED) {
		t.Errorf("memory that cannot be mapped: %v", err)
	}
}

func TestForeignExportDeclines(t *testing.T) {
	m, other := newMachine(t, config{}), newMachine(t, config{})
	d := other.device(t, 0)
	_, err := m.mapper(t, d).Map(alloc(t, d, gpu.KindVirtual, 4096), 4096)
	decline(t, err, "import")
	if !errors.Is(err, nvrm.NV_ERR_INVALID_PARAMETER) {
		t.Errorf("import of another machine's memory: %v", err)
	}
}

// TestLifetimes closes the mapper before its window.
func TestLifetimes(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	a := alloc(t, d, gpu.KindVirtual, 2<<20)
	mapper := rm.NewMapper(dev.Of(m.os), d, rm.NoBudget)
	w, err := mapper.Map(a, 4096)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := mapper.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mapper.Map(a, 4096); !errors.Is(err, rm.ErrClosed) {
		t.Errorf("map after close: %v", err)
	}
	if err := storeTo(w, 0, []byte("still here")); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	m.idle(t)
	if err := w.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// A freed allocation stays mapped, and stores reach no other memory.
func TestFreeWhileMapped(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	mapper := m.mapper(t, d)
	before, _, err := d.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []gpu.Kind{gpu.KindVirtual, gpu.KindDevice} {
		a, err := d.Alloc(kind, 2<<20, 0)
		if err != nil {
			t.Fatal(err)
		}
		w, err := mapper.Map(a, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Free(a); err != nil {
			t.Fatal(err)
		}
		next := alloc(t, d, kind, 2<<20)
		want := content(t, d, next, 2<<20)
		if err := storeTo(w, 0, pattern(2<<20, 99)); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(content(t, d, next, 2<<20), want) {
			t.Error("a store reached the next allocation")
		}
		free, _, _ := d.MemInfo()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if after, _, _ := d.MemInfo(); after != free+2<<20 || after >= before {
			t.Errorf("%v: free memory %d, then %d, then %d", kind, before, free, after)
		}
	}
}

func TestImportFile(t *testing.T) {
	m := newMachine(t, config{gpus: 2})
	d := m.device(t, 1)
	a := alloc(t, d, gpu.KindVirtual, 2<<20)
	f, err := d.Export(a, 2<<20, gpu.ExportPosixFD)
	if err != nil {
		t.Fatal(err)
	}
	w, err := rm.ImportFile(dev.Of(m.os), d.Info().PCI, f, 5000)
	if err != nil {
		t.Fatal(err)
	}
	if w.Len() != 5000 {
		t.Errorf("window of %d bytes", w.Len())
	}
	fresh := pattern(5000, 7)
	if err := storeTo(w, 0, fresh); err != nil || !bytes.Equal(content(t, d, a, 5000), fresh) {
		t.Errorf("the GPU does not have what was stored: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	m.idle(t)
	for _, c := range []struct {
		pci  string
		n    uint64
		want error
	}{
		{m.device(t, 0).Info().PCI, 4096, nvrm.NV_ERR_INVALID_OBJECT_PARENT},
		{d.Info().PCI, 3 << 20, nvrm.NV_ERR_INVALID_LIMIT},
		{d.Info().PCI, 0, gpu.ErrInvalidValue},
	} {
		if _, err := rm.ImportFile(dev.Of(m.os), c.pci, f, c.n); !errors.Is(err, c.want) {
			t.Errorf("import %d bytes at %s: %v, want %v", c.n, c.pci, err, c.want)
		}
		m.idle(t)
	}
	if _, err := rm.ImportFile(dev.Of(m.os), "nowhere", f, 4096); err == nil {
		t.Error("a GPU was found at nowhere")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := rm.ImportFile(dev.Of(m.os), d.Info().PCI, f, 4096); !errors.Is(err, os.ErrClosed) {
		t.Errorf("import of a closed file: %v", err)
	}
}
