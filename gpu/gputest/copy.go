package gputest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

var copyCases = []testCase{
	{"copy", copySizes},
	{"copy-kinds", copyKinds},
	{"copy-zero", copyZero},
	{"copy-past-end", copyPastEnd},
	{"copy-freed", copyFreed},
	{"copy-plain-host", copyPlainHost},
	{"copy-neighbours", copyNeighbours},
	{"fill", fillWidths},
	{"fill-wrong", fillWrong},
}

func copySizes(b *bench) {
	const room = 5 << 20
	a, c := b.alloc(gpu.KindDevice, room), b.alloc(gpu.KindDevice, room)
	for _, n := range []int{1, 3, 511, 4096, 65535, 65536, 65537, 1<<20 + 1, 2<<20 + 3} {
		for _, off := range []gpu.Addr{0, 1, 65535, 2<<20 - 1} {
			step := fmt.Sprintf("%d-at-%d", n, off)
			in := pattern(n+int(off), n)
			b.must(b.dev.CopyIn(a+off, in))
			b.contains(step+".in-out", a+off, in)
			b.must(b.dev.Copy(c+off/2, a+off, uint64(n)))
			b.contains(step+".between", c+off/2, in)
		}
	}
}

func copyKinds(b *bench) {
	const n = 100_003
	in := pattern(9, n)
	for _, from := range kinds {
		src := b.alloc(from, n)
		b.must(b.dev.CopyIn(src, in))
		for _, to := range kinds {
			dst := b.alloc(to, n)
			b.must(b.dev.Fill(dst, 0, 1, n))
			b.ok(fmt.Sprintf("%v-%v", from, to), b.dev.Copy(dst, src, n))
			b.contains(fmt.Sprintf("%v-%v.read", from, to), dst, in)
		}
	}
}

func copyZero(b *bench) {
	a := b.alloc(gpu.KindDevice, 4096)
	b.note("in", b.dev.CopyIn(a, nil))
	b.note("out", b.dev.CopyOut(nil, a))
	b.note("copy", b.dev.Copy(a, a+2048, 0))
	b.note("in-zero-address", b.dev.CopyIn(0, nil))
	b.note("copy-zero-address", b.dev.Copy(0, 0, 0))
	b.note("fill", b.dev.Fill(a, 1, 4, 0))
	b.note("stream-copy", b.stream().Copy(a, a+2048, 0))
	b.note("stream-fill", b.stream().Fill(a, 1, 4, 0))
}

func copyPastEnd(b *bench) {
	b.apart()
	buf := make([]byte, 5<<20)
	h := b.alloc(gpu.KindHost, 5<<20)
	for _, k := range kinds {
		for _, n := range []int{100, 65536, 1 << 20, 3 << 20} {
			if !k.OnDevice() && n != 100 {
				continue // the bytes behind it may be in use
			}
			a := b.alloc(k, uint64(n))
			if k == gpu.KindVirtual {
				n = (n + 2<<20 - 1) &^ (2<<20 - 1)
			}
			step := fmt.Sprintf("%v.%d", k, n)
			end := a + gpu.Addr(n)
			b.note(step+".in-by-1", b.dev.CopyIn(a, buf[:n+1]))
			b.note(step+".in-at-end", b.dev.CopyIn(end-1, buf[:2]))
			b.note(step+".out-by-1", b.dev.CopyOut(buf[:n+1], a))
			if k.OnDevice() {
				b.note(step+".in-by-64K", b.dev.CopyIn(a, buf[:n+65536]))
				b.note(step+".copy", b.dev.Copy(a, h, uint64(n)+1))
				b.note(step+".fill", b.dev.Fill(a, 0, 1, uint64(n)+1))
				b.note(step+".stream-copy", b.stream().Copy(a, h, uint64(n)+1))
			}
			b.note(step+".context", b.dev.Synchronize())
		}
	}
}

func copyFreed(b *bench) {
	b.apart()
	buf := make([]byte, 4096)
	for _, n := range []uint64{4096, 4 << 20} {
		a := b.alloc(gpu.KindDevice, n)
		b.must(b.dev.Free(a))
		b.note(fmt.Sprintf("in.%d", n), b.dev.CopyIn(a, buf))
		b.note(fmt.Sprintf("out.%d", n), b.dev.CopyOut(buf, a))
		b.note(fmt.Sprintf("fill.%d", n), b.dev.Fill(a, 0, 1, 4096))
	}
	v := b.alloc(gpu.KindVirtual, 4096)
	b.must(b.dev.Free(v))
	b.note("virtual.in", b.dev.CopyIn(v, buf))
}

// copyPlainHost passes unregistered host memory where device memory is expected.
func copyPlainHost(b *bench) {
	b.apart()
	const n = 8192
	plain, buf := pages(b, n, rw), pattern(11, n)
	a := b.alloc(gpu.KindDevice, n)
	b.note("in", b.dev.CopyIn(addr(plain), buf))
	b.note("out", b.dev.CopyOut(buf, addr(plain)))
	b.note("fill", b.dev.Fill(addr(plain), 0, 1, n))

	copy(plain, pattern(12, n))
	if b.note("copy-from", b.dev.Copy(a, addr(plain), n)) == gpu.Success {
		b.contains("copy-from.read", a, plain)
	}
	b.must(b.dev.CopyIn(a, pattern(13, n)))
	if b.note("copy-to", b.dev.Copy(addr(plain), a, n)) == gpu.Success {
		b.equal("copy-to.read", bytes.Equal(plain, pattern(13, n)), true)
	}
	s := b.stream()
	copy(plain, pattern(14, n))
	if b.note("stream-from", s.Copy(a, addr(plain), n)) == gpu.Success {
		b.must(s.Synchronize())
		b.contains("stream-from.read", a, plain)
	}
	b.must(b.dev.CopyIn(a, pattern(15, n)))
	if b.note("stream-to", s.Copy(addr(plain), a, n)) == gpu.Success {
		b.must(s.Synchronize())
		b.equal("stream-to.read", bytes.Equal(plain, pattern(15, n)), true)
	}
	b.note("stream-fill", s.Fill(addr(plain), 0, 1, n))
	b.note("context", s.Synchronize())
}

// copyGarbage uses invalid addresses. It runs late, because a driver might
// access them.
func copyGarbage(b *bench) {
	b.apart()
	buf := make([]byte, 16)
	for _, a := range []gpu.Addr{0, 16, 1 << 60} {
		b.note(fmt.Sprintf("in.%#x", uint64(a)), b.dev.CopyIn(a, buf))
		b.note(fmt.Sprintf("out.%#x", uint64(a)), b.dev.CopyOut(buf, a))
		b.note(fmt.Sprintf("fill.%#x", uint64(a)), b.dev.Fill(a, 0, 1, 16))
	}
}

// copyNeighbours fills allocations up to their ends and looks at the others.
func copyNeighbours(b *bench) {
	sizes := []int{1, 100, 511, 512, 513, 4096, 65536, 100_000, 1<<20 - 1, 1 << 20, 2<<20 + 1}
	addrs := make([]gpu.Addr, len(sizes))
	for i, n := range sizes {
		addrs[i] = b.alloc(gpu.KindDevice, uint64(n))
	}
	for i, n := range sizes {
		b.must(b.dev.CopyIn(addrs[i], pattern(i, n)))
	}
	for i, n := range slices.Backward(sizes) {
		b.contains(fmt.Sprint(n), addrs[i], pattern(i, n))
	}
}

func fillWidths(b *bench) {
	const room = 300_000
	a := b.alloc(gpu.KindDevice, room)
	for _, c := range []struct {
		width int
		value uint32
		unit  []byte
	}{
		{1, 0xffffff5a, []byte{0x5a}},
		{2, 0xffff1234, []byte{0x34, 0x12}},
		{4, 0x89abcdef, []byte{0xef, 0xcd, 0xab, 0x89}},
	} {
		for _, n := range []int{1, 2, 3, 1000, 65536, 70_001} {
			want := slices.Concat([]byte{0xee, 0xee, 0xee, 0xee}, bytes.Repeat(c.unit, n), []byte{0xee})
			b.must(b.dev.CopyIn(a, bytes.Repeat([]byte{0xee}, len(want))))
			b.must(b.dev.Fill(a+4, c.value, c.width, uint64(n)))
			b.contains(fmt.Sprintf("%dx%d", c.width, n), a, want)
		}
	}
}

func fillWrong(b *bench) {
	b.apart()
	a := b.alloc(gpu.KindDevice, 65536)
	for _, w := range []int{0, 3, 8, -1} {
		b.want(fmt.Sprintf("width.%d", w), b.dev.Fill(a, 0, w, 1), gpu.ErrInvalidValue)
		b.want(fmt.Sprintf("stream-width.%d", w), b.stream().Fill(a, 0, w, 1), gpu.ErrInvalidValue)
	}
	b.note("misaligned.2", b.dev.Fill(a+1, 0, 2, 1))
	b.note("misaligned.4", b.dev.Fill(a+2, 0, 4, 1))
	b.note("overflow.4", b.dev.Fill(a, 0, 4, 1<<62))
	b.note("huge.1", b.dev.Fill(a, 0, 1, 1<<50))
	b.note("context", b.dev.Synchronize())
}
