package gpu_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

const rw = unix.PROT_READ | unix.PROT_WRITE

// TestMapExport: a mapping of a dma-buf is the memory, at the offset of the export, and keeps
// it when descriptor and allocation are gone.
func TestMapExport(t *testing.T) {
	const n = 4 << 20
	d, x := device(t, softgpu.Config{Models: tiny(8 << 20), Scatter: true})
	a := alloc(t, x, gpu.KindDevice, n)
	must(t, x.CopyIn(a, text(n)))
	f, err := x.Export(a+65536, n/2, gpu.ExportDMABuf)
	must(t, err)
	v, err := d.MapExport(int(f.Fd()), 4096, n/4, rw)
	must(t, err)
	if got := dev.Bytes(v); string(got) != string(text(n)[65536+4096:][:n/4]) {
		t.Error("the mapping has other bytes")
	}
	dev.Bytes(v)[0] = 'x'
	b := make([]byte, 1)
	must(t, x.CopyOut(b, a+65536+4096))
	if b[0] != 'x' {
		t.Errorf("the GPU reads %q", b)
	}
	must(t, f.Close())
	free(t, x, a)
	if got := freeMemory(t, x); got != 4<<20 {
		t.Errorf("%d bytes free while the memory is mapped", got)
	}
	must(t, errors.Join(v.Unmap(), v.Unmap()))
	if got := freeMemory(t, x); got != 8<<20 {
		t.Errorf("%d bytes free after the mapping", got)
	}
}

func TestMapExportErrors(t *testing.T) {
	const n = 2 << 20
	d, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	f, err := x.Export(alloc(t, x, gpu.KindDevice, n), n, gpu.ExportDMABuf)
	must(t, err)
	defer f.Close()
	posix, err := x.Export(alloc(t, x, gpu.KindVirtual, n), n, gpu.ExportPosixFD)
	must(t, err)
	defer posix.Close()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	for _, tt := range []struct {
		name string
		fd   int
		off  int64
		n    uint64
		want error
	}{
		{"size 0", int(f.Fd()), 0, 0, syscall.EINVAL},
		{"part of a page", int(f.Fd()), 1, 4096, syscall.EINVAL},
		{"negative offset", int(f.Fd()), -4096, 4096, syscall.EINVAL},
		{"behind the end", int(f.Fd()), n, 1, syscall.EINVAL},
		{"over the end", int(f.Fd()), 4096, n - 4095, syscall.EINVAL},
		{"whole address space", int(f.Fd()), 0, 1<<64 - 1, syscall.EINVAL},
		{"descriptor of virtual memory", int(posix.Fd()), 0, n, syscall.ENODEV},
		{"pipe", int(r.Fd()), 0, 4096, syscall.ENODEV},
		{"no descriptor", -1, 0, 4096, syscall.EBADF},
	} {
		if _, err := d.MapExport(tt.fd, tt.off, tt.n, rw); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestExportPagesAround: a dma-buf may contain the whole pages around a small allocation,
// which belong to the same block, and nothing outside of it.
func TestExportPagesAround(t *testing.T) {
	_, x := device(t, softgpu.Config{Models: tiny(8 << 20)})
	small := alloc(t, x, gpu.KindDevice, 4)
	second := alloc(t, x, gpu.KindDevice, 4)
	first := small &^ 4095
	if second&^4095 != first {
		t.Fatalf("small allocations at %v and %v share no page", small, second)
	}
	f, err := x.Export(first, 8192, gpu.ExportDMABuf)
	must(t, err)
	must(t, f.Close())
	_, err = x.Export(first, 2<<20+4096, gpu.ExportDMABuf)
	wantCode(t, "more than the block", err, gpu.ErrInvalidValue)
}
