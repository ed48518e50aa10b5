package gputest

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

var exportCases = []testCase{
	{"export-fd", exportFD},
	{"export-fd-wrong", exportFDWrong},
	{"import-wrong", importWrong},
	{"export-dma-buf", exportDMABuf},
	{"export-life", exportLife},
}

func exportFD(b *bench) {
	const n = 4 << 20
	a := b.alloc(gpu.KindVirtual, n)
	b.must(b.dev.CopyIn(a, pattern(51, n)))
	f := got(b.dev.Export(a, n, gpu.ExportPosixFD)).ok(b, "export")
	i := got(b.dev.Import(f, n)).ok(b, "import")
	b.must(f.Close())
	p := b.pointer(i + 100)
	b.equal("kind", p.Kind, gpu.KindVirtual)
	b.equal("base", p.Base == i, true)
	b.equal("another-address", i != a, true)
	b.contains("same-bytes", i, pattern(51, n))
	b.must(b.dev.CopyIn(i+n-8, []byte("imported")))
	b.contains("both-ways", a+n-8, []byte("imported"))
	b.ok("free-original", b.dev.Free(a))
	b.contains("stays", i+n-8, []byte("imported"))
	b.ok("free-import", b.dev.Free(i))
}

func exportFDWrong(b *bench) {
	v := b.alloc(gpu.KindVirtual, 4<<20)
	try := func(step string, a gpu.Addr, n uint64, as gpu.Export) {
		f, err := b.dev.Export(a, n, as)
		if b.note(step, err) == gpu.Success {
			b.must(f.Close())
		}
	}
	try("size-0", v, 0, gpu.ExportPosixFD)
	try("inside", v+4096, 4096, gpu.ExportPosixFD)
	try("part", v, 2<<20, gpu.ExportPosixFD)
	try("past-end", v, 8<<20, gpu.ExportPosixFD)
	try("form-0", v, 4<<20, 0)
	try("form-9", v, 4<<20, 9)
	try("device", b.alloc(gpu.KindDevice, 4<<20), 4<<20, gpu.ExportPosixFD)
	try("host", b.alloc(gpu.KindHost, 4096), 4096, gpu.ExportPosixFD)
	try("managed", b.alloc(gpu.KindManaged, 4096), 4096, gpu.ExportPosixFD)
	try("zero-address", 0, 4096, gpu.ExportPosixFD)
	b.must(b.dev.Free(v))
	try("freed", v, 4<<20, gpu.ExportPosixFD)
}

func importWrong(b *bench) {
	const n = 4 << 20
	a := b.alloc(gpu.KindVirtual, n)
	f := got(b.dev.Export(a, n, gpu.ExportPosixFD)).must(b)
	b.want("size-0", errOf(b.dev.Import(f, 0)), gpu.ErrInvalidValue)
	for _, size := range []uint64{1, 2 << 20, n - 1, n + 1, 2 * n} {
		i, err := b.dev.Import(f, size)
		if b.note(fmt.Sprintf("size-%d", size), err) == gpu.Success {
			p := b.pointer(i)
			b.result(fmt.Sprintf("size-%d.size", size), p.Size)
			b.must(b.dev.Free(i))
		}
	}
	b.must(f.Close())
	b.note("closed-file", errOf(b.dev.Import(f, n)))
	plain := got(os.Create(filepath.Join(b.TempDir(), "plain"))).must(b)
	b.note("plain-file", errOf(b.dev.Import(plain, n)))
	b.must(plain.Close())
	null := got(os.Open(os.DevNull)).must(b)
	b.note("dev-null", errOf(b.dev.Import(null, n)))
	b.must(null.Close())
	buf, err := b.dev.Export(b.alloc(gpu.KindDevice, n), n, gpu.ExportDMABuf)
	if err == nil {
		b.note("dma-buf", errOf(b.dev.Import(buf, n)))
		b.must(buf.Close())
	}
}

func exportDMABuf(b *bench) {
	v, err := b.dev.Attribute(abi.AttrDMABuf)
	b.needs(err == nil && v == 1, "DMA_BUF_SUPPORTED")
	const n = 4 << 20
	try := func(step string, a gpu.Addr, n uint64) {
		f, err := b.dev.Export(a, n, gpu.ExportDMABuf)
		if b.note(step, err) != gpu.Success {
			return
		}
		_, err = unix.Mmap(int(f.Fd()), 0, 4096, rw, unix.MAP_SHARED)
		b.fact(step+".mmap", err)
		b.must(f.Close())
	}
	d := b.alloc(gpu.KindDevice, n)
	try("device", d, n)
	try("part", d+65536, 65536)
	try("page", d+4096, 4096)
	try("unaligned-address", d+512, 4096)
	try("unaligned-size", d, 4097)
	try("size-0", d, 0)
	try("past-end", d, n+4096)
	try("virtual", b.alloc(gpu.KindVirtual, n), n)
	try("small", (b.alloc(gpu.KindDevice, 65536)+4095)&^4095, 4096)
	try("host", b.alloc(gpu.KindHost, 65536), 65536)
	try("managed", b.alloc(gpu.KindManaged, 65536), 65536)
	try("plain", addr(pages(b, 65536, rw)), 65536)
	try("zero-address", 0, 4096)
	b.must(b.dev.Free(d))
	try("freed", d, n)
}

// exportLife shows that a descriptor keeps the memory, and that closing it
// gives the memory back.
func exportLife(b *bench) {
	const n = 64 << 20
	free := b.freeMemory()
	b.needs(free > 4*n, "256 MiB of free GPU memory")
	a := b.alloc(gpu.KindVirtual, n)
	b.must(b.dev.CopyIn(a, pattern(52, 4096)))
	f := got(b.dev.Export(a, n, gpu.ExportPosixFD)).must(b)
	b.ok("free", b.dev.Free(a))
	held := b.freeMemory()
	b.equal("held", free-held >= n, true)
	i := got(b.dev.Import(f, n)).ok(b, "import")
	b.contains("bytes", i, pattern(52, 4096))
	b.must(b.dev.Free(i))
	b.must(f.Close())
	after := b.freeMemory()
	b.equal("back", after-held >= n, true)
}
