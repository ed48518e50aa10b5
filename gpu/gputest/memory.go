package gputest

import (
	"fmt"
	"math"

	"github.com/culvert-io/culvert/gpu"
)

var memoryCases = []testCase{
	{"alloc", allocKinds},
	{"alloc-flags", allocFlags},
	{"alloc-size", allocSize},
	{"alloc-place", allocPlace},
	{"alloc-large", allocLarge},
	{"free", freeWrong},
	{"free-other", freeOther},
	{"mem-info", memInfo},
	{"pointer", pointer},
	{"device-pointer", devicePointer},
	{"pinned", pinned},
	{"managed", managed},
	{"sync-memops", syncMemops},
	{"rounds", rounds},
}

var kinds = []gpu.Kind{gpu.KindDevice, gpu.KindVirtual, gpu.KindHost, gpu.KindManaged}

func allocKinds(b *bench) {
	const n = 100_000
	for _, k := range kinds {
		name := k.String()
		a := got(b.dev.Alloc(k, n, 0)).ok(b, name)
		p := got(b.dev.Pointer(a+n/2)).ok(b, name+".pointer")
		b.equal(name+".kind", p.Kind, k)
		b.equal(name+".base", p.Base == a, true)
		b.equal(name+".contains", p.Contains(a, n), true)
		b.result(name+".device", p.Device)
		b.equal(name+".host", p.Host != 0, !k.OnDevice())
		b.result(name+".size", p.Size)
		b.ok(name+".free", b.dev.Free(a))
		p = got(b.dev.Pointer(a)).ok(b, name+".freed")
		b.equal(name+".freed-kind", p.Kind, gpu.KindNone)
	}
	for _, k := range []gpu.Kind{gpu.KindNone, gpu.KindRegistered, 77} {
		b.want(fmt.Sprint(k), errOf(b.dev.Alloc(k, n, 0)), gpu.ErrInvalidValue)
	}
}

func allocFlags(b *bench) {
	for _, f := range []gpu.Flags{gpu.HostPortable, gpu.HostMapped, gpu.HostWriteCombined, 7} {
		a := got(b.dev.Alloc(gpu.KindHost, 4096, f)).ok(b, fmt.Sprintf("host.%d", f))
		b.must(b.dev.Fill(a, 0x5a5a5a5a, 4, 1024))
		b.equal(fmt.Sprintf("host.%d.byte", f), gpu.HostBytes(a, 4096)[4095], byte(0x5a))
	}
	for _, f := range []gpu.Flags{gpu.ManagedGlobal, gpu.ManagedHost} {
		b.ok(fmt.Sprintf("managed.%d", f), errOf(b.dev.Alloc(gpu.KindManaged, 4096, f)))
	}
	for _, k := range kinds {
		b.want(k.String()+".unknown", errOf(b.dev.Alloc(k, 4096, 1<<30)), gpu.ErrInvalidValue)
	}
	b.note("managed.both", errOf(b.dev.Alloc(gpu.KindManaged, 4096, 3)))
	b.want("device.1", errOf(b.dev.Alloc(gpu.KindDevice, 4096, 1)), gpu.ErrInvalidValue)
}

func allocSize(b *bench) {
	for _, k := range kinds {
		b.want(k.String()+".0", errOf(b.dev.Alloc(k, 0, 0)), gpu.ErrInvalidValue)
		// Sizes that no machine has: more than there are addresses, so that
		// nothing is tried page by page.
		for _, n := range []uint64{1 << 50, 1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64 - 4095, math.MaxUint64} {
			a, err := b.dev.Alloc(k, n, 0)
			if c := b.note(fmt.Sprintf("%v.%#x", k, n), err); c == gpu.Success {
				b.Errorf("%v memory of %#x bytes at %v", k, n, a)
				b.must(b.dev.Free(a))
			}
		}
	}
	_, total, err := b.dev.MemInfo()
	b.must(err)
	b.want("device.too-much", errOf(b.dev.Alloc(gpu.KindDevice, total+1, 0)), gpu.ErrOutOfMemory)
	b.want("virtual.too-much", errOf(b.dev.Alloc(gpu.KindVirtual, total+1, 0)), gpu.ErrOutOfMemory)
}

func allocPlace(b *bench) {
	var all []gpu.Pointer
	for i, n := range []uint64{1, 1, 255, 256, 257, 511, 513, 4096, 65536, 65537, 1<<20 - 1, 1 << 20, 1<<20 + 1, 2 << 20, 3 << 20} {
		a := b.alloc(gpu.KindDevice, n)
		b.equal(fmt.Sprintf("%d.aligned-256", i), a%256, gpu.Addr(0))
		b.result(fmt.Sprintf("%d.aligned-512", i), a%512 == 0)
		b.result(fmt.Sprintf("%d.aligned-2M", i), a%(2<<20) == 0 || n < 1<<20)
		all = append(all, gpu.Pointer{Base: a, Size: n})
	}
	for i, p := range all {
		for _, q := range all[:i] {
			if p.Base < q.Base+gpu.Addr(q.Size) && q.Base < p.Base+gpu.Addr(p.Size) {
				b.Errorf("allocations overlap: %d bytes at %v and %d at %v", p.Size, p.Base, q.Size, q.Base)
			}
		}
	}
}

// allocLarge crosses the boundaries at which 32-bit sizes fail.
func allocLarge(b *bench) {
	const n = 3 << 30
	free := b.freeMemory()
	b.needs(free > n+1<<30, "4 GiB of free GPU memory")
	a := got(b.dev.Alloc(gpu.KindDevice, n, 0)).ok(b, "alloc")
	text := pattern(1, 8192)
	const border, half = 1 << 31, 16 << 20
	for _, at := range []gpu.Addr{0, border - half - 8192, border + half, n - 8192} {
		b.must(b.dev.CopyIn(a+at, text))
		b.contains(fmt.Sprintf("at-%#x", uint64(at)), a+at, text)
	}
	b.ok("fill", b.dev.Fill(a+border-half, 0x01020304, 4, 2*half/4))
	b.contains("fill-start", a+border-half, []byte{4, 3, 2, 1})
	b.contains("fill-end", a+border+half-4, []byte{4, 3, 2, 1})
	b.contains("fill-before", a+border-half-8192, text)
	b.contains("fill-after", a+border+half, text)
	b.ok("copy", b.dev.Copy(a+n-half, a+border-half/2, half))
	b.contains("copy-end", a+n-4, []byte{4, 3, 2, 1})
	p := got(b.dev.Pointer(a+n-1)).ok(b, "pointer")
	b.equal("pointer-base", p.Base == a, true)
	b.ok("free", b.dev.Free(a))
}

func freeWrong(b *bench) {
	for _, k := range kinds {
		a := b.alloc(k, 8192)
		b.want(k.String()+".inside", b.dev.Free(a+4096), gpu.ErrInvalidValue)
		b.ok(k.String(), b.dev.Free(a))
		b.want(k.String()+".twice", b.dev.Free(a), gpu.ErrInvalidValue)
	}
	b.want("zero", b.dev.Free(0), gpu.ErrInvalidValue)
	b.want("one", b.dev.Free(1), gpu.ErrInvalidValue)
	plain := pages(b, 4096, rw)
	b.want("plain-host", b.dev.Free(addr(plain)), gpu.ErrInvalidValue)
	b.must(b.dev.Register(host(plain), 4096, 0))
	b.want("registered", b.dev.Free(addr(plain)), gpu.ErrInvalidValue)
	b.must(b.dev.Unregister(host(plain)))
}

func freeOther(b *bench) {
	a := b.alloc(gpu.KindDevice, 4096)
	same := b.open()
	b.want("same-context", same.Free(a), gpu.ErrInvalidValue)
	b.must(same.Close())
	b.want("other-context", b.other().Free(a), gpu.ErrInvalidValue)
	b.ok("own", b.dev.Free(a))
}

func memInfo(b *bench) {
	const n = 64 << 20
	before, total, err := b.dev.MemInfo()
	b.ok("info", err)
	b.equal("free-below-total", before <= total, true)
	a := b.alloc(gpu.KindDevice, n)
	during := b.freeMemory()
	b.equal("alloc-takes", before-during >= n, true)
	b.must(b.dev.Free(a))
	after := b.freeMemory()
	b.equal("free-gives", after-during >= n, true)
	small := b.alloc(gpu.KindDevice, 1)
	with := b.freeMemory()
	b.fact("one-byte-takes", after-with)
	b.must(b.dev.Free(small))
	b.fact("total", total)
}

func pointer(b *bench) {
	for _, a := range []gpu.Addr{0, 1, 4096, 1 << 46, 1 << 60} {
		p := got(b.dev.Pointer(a)).ok(b, fmt.Sprintf("%#x", uint64(a)))
		b.equal(fmt.Sprintf("%#x.kind", uint64(a)), p.Kind, gpu.KindNone)
	}
	plain := pages(b, 4096, rw)
	p := got(b.dev.Pointer(addr(plain))).ok(b, "plain-host")
	b.equal("plain-host.kind", p.Kind, gpu.KindNone)
	for _, n := range []uint64{1, 100, 8191, 3<<20 + 1} {
		a := b.alloc(gpu.KindDevice, n)
		first := b.pointer(a)
		last := b.pointer(a + gpu.Addr(n) - 1)
		b.equal(fmt.Sprintf("device.%d.same", n), first.Base == last.Base && first.Size == last.Size, true)
		b.result(fmt.Sprintf("device.%d.size", n), first.Size)
		after := b.pointer(a + gpu.Addr(first.Size))
		b.equal(fmt.Sprintf("device.%d.past-end", n), after.Base == a, false)
	}
}

func devicePointer(b *bench) {
	h := b.alloc(gpu.KindHost, 8192)
	d := got(b.dev.DevicePointer(uintptr(h))).ok(b, "host")
	b.equal("host.same", d == h, true)
	d = got(b.dev.DevicePointer(uintptr(h)+100)).ok(b, "host.inside")
	b.equal("host.inside.same", d == h+100, true)
	plain := pages(b, 8192, rw)
	b.note("plain", errOf(b.dev.DevicePointer(host(plain))))
	b.must(b.dev.Register(host(plain), 8192, 0))
	d, err := b.dev.DevicePointer(host(plain))
	b.note("registered", err)
	b.result("registered.same", d == addr(plain))
	b.must(b.dev.Unregister(host(plain)))
	b.note("unregistered", errOf(b.dev.DevicePointer(host(plain))))
	b.note("device", errOf(b.dev.DevicePointer(uintptr(b.alloc(gpu.KindDevice, 4096)))))
	b.note("managed", errOf(b.dev.DevicePointer(uintptr(b.alloc(gpu.KindManaged, 4096)))))
	b.note("zero", errOf(b.dev.DevicePointer(0)))
	b.must(b.dev.Free(h))
	b.note("freed", errOf(b.dev.DevicePointer(uintptr(h))))
}

// pinned uses a host pointer as a device pointer.
func pinned(b *bench) {
	h := b.alloc(gpu.KindHost, 100)
	v := gpu.HostBytes(h, 100)
	v[0] = 123
	b.ok("fill", b.dev.Fill(h, math.Float32bits(555), 4, 1))
	b.equal("cpu-sees", math.Float32frombits(uint32(v[0])|uint32(v[1])<<8|uint32(v[2])<<16|uint32(v[3])<<24), float32(555))
	d := b.alloc(gpu.KindDevice, 100)
	copy(v, pattern(3, 100))
	b.ok("copy", b.dev.Copy(d, h, 100))
	b.contains("gpu-sees", d, pattern(3, 100))
	b.ok("copy-in", b.dev.CopyIn(h, pattern(4, 100)))
	b.contains("copy-in.read", h, pattern(4, 100))
}

func managed(b *bench) {
	const n = 1 << 20
	m := b.alloc(gpu.KindManaged, n)
	copy(gpu.HostBytes(m, n), pattern(5, n))
	d := b.alloc(gpu.KindDevice, n)
	b.ok("to-device", b.dev.Copy(d, m, n))
	b.contains("gpu-sees", d, pattern(5, n))
	b.ok("fill", b.dev.Fill(m, 7, 1, n))
	b.must(b.dev.Synchronize())
	b.equal("cpu-sees", gpu.HostBytes(m, n)[n-1], byte(7))
}

func syncMemops(b *bench) {
	a := b.alloc(gpu.KindDevice, 2<<20)
	b.ok("on", b.dev.SetSyncMemops(a, true))
	p := b.pointer(a)
	b.equal("is-on", p.SyncMemops, true)
	b.must(b.dev.CopyIn(a, pattern(6, 4096)))
	b.contains("copy", a, pattern(6, 4096))
	b.note("inside", b.dev.SetSyncMemops(a+4096, true))
	b.note("off", b.dev.SetSyncMemops(a, false))
	b.note("virtual", b.dev.SetSyncMemops(b.alloc(gpu.KindVirtual, 4096), true))
	b.note("host", b.dev.SetSyncMemops(b.alloc(gpu.KindHost, 4096), true))
	b.note("managed", b.dev.SetSyncMemops(b.alloc(gpu.KindManaged, 4096), true))
	b.note("plain", b.dev.SetSyncMemops(addr(pages(b, 4096, rw)), true))
	b.note("zero", b.dev.SetSyncMemops(0, true))
	b.must(b.dev.Free(a))
	b.note("freed", b.dev.SetSyncMemops(a, true))
}

// rounds repeats the life of memory, streams and events, and looks for leaks.
func rounds(b *bench) {
	round := func() {
		for _, k := range kinds {
			a := b.alloc(k, 3<<20)
			b.must(b.dev.CopyIn(a+100, []byte("culvert")))
			b.must(b.dev.Free(a))
		}
		s, e := b.stream(), b.event()
		b.must(s.Record(e))
		b.must(s.Close())
		b.must(e.Close())
	}
	round()
	before := b.freeMemory()
	for range 100 {
		round()
	}
	after := b.freeMemory()
	b.equal("free-memory-same", after+16<<20 >= before, true)
}
