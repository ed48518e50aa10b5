package rm_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	cudaabi "github.com/culvert-io/culvert/internal/abi/cuda"
	abi "github.com/culvert-io/culvert/internal/abi/nvrm"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/soft/kernel/nvrm"
)

// A liar gives out IPC handles that were tampered with, as a driver might whose
// layout is another.
type liar struct {
	nvrm.Device
	lie func(*abi.IPCMemHandle)
}

func (l liar) IPCHandle(a gpu.Addr) ([64]byte, error) {
	b, err := l.Device.IPCHandle(a)
	h := abi.ParseIPC(b)
	l.lie(&h)
	return h.Bytes(), err
}

func TestImplausibleHandles(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	const size = 1 << 20
	a, other := alloc(t, d, gpu.KindDevice, size), alloc(t, d, gpu.KindDevice, size)
	b, err := d.IPCHandle(other)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := abi.ParseIPC(b)
	want, wantOther := content(t, d, a, size), content(t, d, other, size)
	for _, c := range []struct {
		name, test string
		lie        func(*abi.IPCMemHandle)
	}{
		{"another process", "IPC handle", func(h *abi.IPCMemHandle) { h.PID++ }},
		{"no object", "IPC handle", func(h *abi.IPCMemHandle) { h.HMemory = 0 }},
		{"no client", "IPC handle", func(h *abi.IPCMemHandle) { h.HClient = 0 }},
		{"no size", "IPC handle", func(h *abi.IPCMemHandle) { h.Size = 0 }},
		{"too large", "IPC handle", func(h *abi.IPCMemHandle) { h.Size *= 2 }},
		{"object too small", "IPC handle", func(h *abi.IPCMemHandle) { h.Pages = 3 }},
		{"offset too large", "IPC handle", func(h *abi.IPCMemHandle) { h.Offset = 1 << 31 }},
		{"garbage", "IPC handle", func(h *abi.IPCMemHandle) { *h = abi.ParseIPC([64]byte(bytes.Repeat([]byte{0xff}, 64))) }},
		{"an object that is not there", "duplicate", func(h *abi.IPCMemHandle) { h.HMemory = 0xdead }},
		{"another allocation", "self-check", func(h *abi.IPCMemHandle) { h.HMemory = elsewhere.HMemory }},
		{"another place", "self-check", func(h *abi.IPCMemHandle) { h.Offset += 4096; h.Pages++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.mapper(t, liar{d, c.lie}).Map(a, size/2)
			decline(t, err, c.test)
		})
	}
	if !bytes.Equal(content(t, d, a, size), want) || !bytes.Equal(content(t, d, other, size), wantOther) {
		t.Error("the self-check has left its traces")
	}
}

// A mappable is a GPU whose dma-bufs can be mapped, as drivers from 610 on have
// it: its memory is a file, and so are they.
type mappable struct {
	rm.GPU
	file *os.File
	base gpu.Addr
	size int64
}

func newMappable(t *testing.T, g rm.GPU) *mappable {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m := &mappable{g, f, 0x7f00_0000_0000, 1 << 20}
	if err := f.Truncate(m.size); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *mappable) Attribute(a gpu.Attribute) (int, error) {
	if a == cudaabi.AttrDMABufMmap {
		return 1, nil
	}
	return m.GPU.Attribute(a)
}

func (m *mappable) Pointer(gpu.Addr) (gpu.Pointer, error) {
	return gpu.Pointer{Kind: gpu.KindDevice, Base: m.base, Size: uint64(m.size)}, nil
}

func (m *mappable) CopyIn(dst gpu.Addr, src []byte) error {
	_, err := m.file.WriteAt(src, int64(dst-m.base))
	return err
}

func (m *mappable) CopyOut(dst []byte, src gpu.Addr) error {
	_, err := m.file.ReadAt(dst, int64(src-m.base))
	return err
}

// Export gives out something else for anything but the whole, so that the
// self-check has something to find.
func (m *mappable) Export(a gpu.Addr, n uint64, as gpu.Export) (*os.File, error) {
	if as != gpu.ExportDMABuf {
		return nil, gpu.ErrNotSupported
	}
	if a == m.base && n == uint64(m.size) {
		return os.OpenFile(m.file.Name(), os.O_RDWR, 0)
	}
	b, err := os.ReadFile(m.file.Name())
	if err != nil {
		return nil, err
	}
	for i := range b {
		b[i] = ^b[i]
	}
	name := m.file.Name() + ".other"
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR, 0)
}

func TestDMABuf(t *testing.T) {
	m := newMachine(t, config{})
	g := newMappable(t, m.device(t, 0))
	mapper := m.mapper(t, g)
	if err := mapper.Probe(); err != nil {
		t.Error(err)
	}
	w, err := mapper.Map(g.base+100, uint64(g.size)-100)
	if err != nil {
		t.Fatal(err)
	}
	if w.Method() != rm.MethodDMABuf {
		t.Errorf("mapped by %v", w.Method())
	}
	if err := storeTo(w, 0, []byte("stored")); err != nil {
		t.Error(err)
	}
	got := make([]byte, 7)
	if err := g.CopyOut(got, g.base+99); err != nil || string(got) != "\x00stored" {
		t.Errorf("the memory holds %q, %v", got, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	// Both ways fail: the first is no mapping of the memory, the second has no handle.
	_, err = mapper.Map(g.base, 4096)
	decline(t, err, "self-check")
	if u := errors.Unwrap(err); u == nil || !bytes.Contains([]byte(err.Error()), []byte("IPC handle")) {
		t.Errorf("error %v does not tell of both ways", err)
	}
}

// A writer notices every write to memory that is not the mapper's own.
type writer struct {
	nvrm.Device
	lo, hi gpu.Addr
	writes int
}

func (w *writer) CopyIn(dst gpu.Addr, src []byte) error {
	if dst < w.hi && dst+gpu.Addr(len(src)) > w.lo {
		w.writes++
	}
	return w.Device.CopyIn(dst, src)
}

// GPU work may use memory while it is being mapped, so nothing is written to it,
// not even to be put back.
func TestMappingWritesNothing(t *testing.T) {
	m := newMachine(t, config{})
	d := m.device(t, 0)
	const size = 4 << 20
	for _, kind := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual} {
		a := alloc(t, d, kind, size)
		g := &writer{Device: d, lo: a, hi: a + size}
		w, err := m.mapper(t, g).Map(a, size)
		if err != nil {
			t.Fatal(err)
		}
		if g.writes > 0 {
			t.Errorf("%v memory was written to %d times", kind, g.writes)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
