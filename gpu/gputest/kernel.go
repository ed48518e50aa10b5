package gputest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

var kernelCases = []testCase{
	{"kernel-counter", kernelCounter},
	{"kernel-results", kernelResults},
	{"kernel-order", kernelOrder},
	{"kernel-arguments", kernelArguments},
	{"kernel-shape", kernelShape},
	{"kernel-pageable", kernelPageable},
	{"module", moduleFuncs},
	{"module-bad", moduleBad},
	{"module-context", moduleContext},
}

// kernel loads a kernel of package kernels.
func (b *bench) kernel(name string) gpu.Func {
	b.Helper()
	m := got(b.dev.Load(kernels.PTX)).must(b)
	f := got(m.Func(name)).must(b)
	return f
}

func one() gpu.Dim { return gpu.Dim{X: 1} }

func (b *bench) word(a gpu.Addr) uint32 {
	b.Helper()
	return binary.LittleEndian.Uint32(b.read(a, 4))
}

func kernelCounter(b *bench) {
	f, s := b.kernel("culvert_counter"), b.stream()
	b.equal("name", f.Name(), "culvert_counter")
	b.equal("params", fmt.Sprint(f.Params()), "[8]")
	for _, k := range kinds {
		a := b.alloc(k, 64)
		b.must(b.dev.Fill(a, 0, 1, 64))
		b.ok(k.String(), s.Launch(f, gpu.Dim{X: 512}, gpu.Dim{X: 1000}, a+4))
		b.finished(k.String()+".synchronise", s)
		b.equal(k.String()+".count", b.word(a+4), uint32(512000))
	}
	a := b.alloc(gpu.KindDevice, 4)
	b.must(b.dev.Fill(a, 0, 4, 1))
	b.must(s.Launch(f, gpu.Dim{X: 2, Y: 3, Z: 4}, gpu.Dim{X: 5, Y: 6, Z: 7}, a))
	b.must(s.Launch(f, gpu.Dim{}, gpu.Dim{}, a)) // zero counts as one
	b.must(s.Synchronize())
	b.equal("shapes", b.word(a), uint32(2*3*4*5*6*7+1))
}

func kernelResults(b *bench) {
	const n = 300_001
	s := b.stream()
	data, other := pattern(31, n), pattern(31, n)
	other[0]++
	other[n-1]++
	a, c, r := b.alloc(gpu.KindDevice, n), b.alloc(gpu.KindDevice, n), b.alloc(gpu.KindDevice, 64)
	b.must(b.dev.CopyIn(a, data))
	b.must(b.dev.CopyIn(c, other))
	b.must(b.dev.Fill(r, 0, 4, 16))
	grid, block := gpu.Dim{X: 32}, gpu.Dim{X: 256}
	b.must(s.Launch(b.kernel("culvert_compare"), grid, block, a, c, uint64(n), r))
	b.must(s.Launch(b.kernel("culvert_sum"), grid, block, a, uint64(n), r+8))
	b.must(s.Launch(b.kernel("culvert_crc32c"), grid, block, a, uint64(n), r+16))
	b.finished("synchronise", s)
	out := b.read(r, 24)
	sum := uint64(0)
	for _, v := range data {
		sum += uint64(v)
	}
	b.equal("compare", binary.LittleEndian.Uint64(out), uint64(2))
	b.equal("sum", binary.LittleEndian.Uint64(out[8:]), sum)
	b.equal("crc32c", binary.LittleEndian.Uint32(out[16:]), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))

	b.must(s.Launch(b.kernel("culvert_fill"), grid, block, a+1, uint64(n-2), uint64(0x0807060504030201)))
	b.must(s.Synchronize())
	want := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, n/8+1)[:n-2]
	b.contains("fill", a+1, want)
	b.contains("fill-before", a, data[:1])
	b.contains("fill-after", a+n-1, data[n-1:])

	b.must(b.dev.CopyIn(a, []byte("culvert\x00")))
	b.must(s.Launch(b.kernel("strrev"), one(), one(), a, r))
	b.must(s.Synchronize())
	b.contains("strrev", a, []byte("trevluc\x00"))
	b.equal("strrev-length", b.word(r), uint32(7))
}

// kernelOrder mixes kernels, copies and fills on one stream.
func kernelOrder(b *bench) {
	f, s := b.kernel("culvert_counter"), b.stream()
	a, h := b.alloc(gpu.KindDevice, 4), b.alloc(gpu.KindHost, 4)
	b.must(s.Fill(a, 7, 4, 1))
	b.must(s.Launch(f, one(), gpu.Dim{X: 10}, a))
	b.must(s.Copy(h, a, 4))
	b.must(s.Fill(a, 0, 4, 1))
	b.finished("synchronise", s)
	b.equal("between", gpu.HostBytes(h, 4)[0], byte(17))
	b.equal("after", b.word(a), uint32(0))
}

func kernelArguments(b *bench) {
	f, s := b.kernel("culvert_sum"), b.stream()
	a := b.alloc(gpu.KindDevice, 64)
	for _, c := range []struct {
		name string
		args []any
	}{
		{"none", nil},
		{"too-few", []any{a, uint64(1)}},
		{"too-many", []any{a, uint64(1), a, a}},
		{"too-small", []any{a, uint32(1), a}},
		{"text", []any{a, "1", a}},
		{"int", []any{a, 1, a}},
		{"nil", []any{nil, uint64(1), a}},
		{"slice", []any{[]byte{1}, uint64(1), a}},
	} {
		b.want(c.name, s.Launch(f, one(), one(), c.args...), gpu.ErrInvalidValue)
	}
	b.want("no-function", s.Launch(nil, one(), one()), gpu.ErrInvalidHandle)
	b.ok("right", s.Launch(f, one(), one(), a, uint64(1), a+8))
	b.finished("synchronise", s)
}

func kernelShape(b *bench) {
	f, s := b.kernel("culvert_counter"), b.stream()
	a := b.alloc(gpu.KindDevice, 4)
	for _, c := range []struct {
		name        string
		grid, block gpu.Dim
	}{
		{"block-1024", one(), gpu.Dim{X: 1024}},
		{"block-1025", one(), gpu.Dim{X: 1025}},
		{"block-1024x2", one(), gpu.Dim{X: 1024, Y: 2}},
		{"block-z-65", one(), gpu.Dim{X: 1, Y: 1, Z: 65}},
		{"block-y-1025", one(), gpu.Dim{X: 1, Y: 1025}},
		{"grid-y-65535", gpu.Dim{X: 1, Y: 65535}, one()},
		{"grid-y-65536", gpu.Dim{X: 1, Y: 65536}, one()},
		{"grid-z-65536", gpu.Dim{X: 1, Y: 1, Z: 65536}, one()},
		{"grid-x-2^31", gpu.Dim{X: 1 << 31}, one()},
	} {
		b.note(c.name, s.Launch(f, c.grid, c.block, a))
	}
	b.finished("synchronise", s)
}

// kernelPageable lets a kernel access memory that was never registered.
func kernelPageable(b *bench) {
	v, err := b.dev.Attribute(gpu.AttrPageableMemoryAccess)
	b.needs(err == nil && v == 1, "PAGEABLE_MEMORY_ACCESS")
	plain, s := pages(b, 4096, rw), b.stream()
	clear(plain)
	plain[0] = 5
	b.ok("launch", s.Launch(b.kernel("culvert_counter"), gpu.Dim{X: 512}, gpu.Dim{X: 1000}, addr(plain)))
	b.finished("synchronise", s)
	b.equal("count", binary.LittleEndian.Uint32(plain), uint32(512005))
}

func moduleFuncs(b *bench) {
	m := got(b.dev.Load(kernels.PTX)).ok(b, "load")
	b.want("unknown", errOf(m.Func("culvert_no_such_kernel")), gpu.ErrNotFound)
	b.want("empty", errOf(m.Func("")), gpu.ErrNotFound)
	f := got(m.Func("culvert_counter")).ok(b, "func")
	b.ok("close", m.Close())
	b.want("func-closed", errOf(m.Func("culvert_counter")), gpu.ErrInvalidHandle)
	b.want("launch-closed", b.stream().Launch(f, one(), one(), b.alloc(gpu.KindDevice, 4)), gpu.ErrInvalidHandle)
	b.want("twice", m.Close(), gpu.ErrInvalidHandle)
	b.note("nul-terminated", errOf(b.dev.Load(append(bytes.Clone(kernels.PTX), 0))))
}

func moduleBad(b *bench) {
	for _, c := range []struct{ name, text string }{
		{"empty", ""},
		{"text", "this is not PTX"},
		{"half", string(kernels.PTX[:len(kernels.PTX)/2])},
		{"no-target", ".version 7.0\n.address_size 64\n"},
		{"no-entries", ".version 7.0\n.target sm_70\n.address_size 64\n"},
		{"future-version", ".version 99.0\n.target sm_70\n.address_size 64\n"},
		{"future-target", ".version 7.0\n.target sm_999\n.address_size 64\n"},
		{"bad-instruction", ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n\tfrobnicate;\n\tret;\n}\n"},
		{"elf", "\x7fELF\x02\x01\x01"},
	} {
		b.note(c.name, errOf(b.dev.Load([]byte(c.text))))
	}
}

func moduleContext(b *bench) {
	f, s := b.on(b.other()).kernel("culvert_counter"), b.stream()
	a := b.alloc(gpu.KindDevice, 4)
	b.note("launch-foreign", s.Launch(f, one(), one(), a))
	b.must(s.Synchronize())
}
