package gputest

import (
	"fmt"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/cuda"
)

var contextCases = []testCase{
	{"open", openWrong},
	{"attributes", attributes},
	{"handles", handles},
	{"closed", closed},
	{"close-frees", closeFrees},
	{"context", contextOther},
	{"context-flags", contextFlags},
	{"bind", bind},
	{"flush", flush},
}

func openWrong(b *bench) {
	infos := got(b.drv.Devices()).ok(b, "devices")
	for name, i := range map[string]int{"minus-one": -1, "count": len(infos), "huge": 1 << 20} {
		b.want(name, errOf(b.drv.Open(i)), gpu.ErrInvalidDevice)
	}
	b.equal("info-same", b.dev.Info() == infos[0], true)
	b.fact("name", infos[0].Name)
}

func attributes(b *bench) {
	for a := range gpu.Attribute(160) {
		v, err := b.dev.Attribute(a)
		switch known := a.String() != fmt.Sprintf("ATTRIBUTE_%d", a); {
		case known && err != nil:
			b.result(a.String(), gpu.CodeOf(err).Name())
		case known && machineAttributes[a]:
			b.fact(a.String(), v)
		case known:
			b.result(a.String(), v)
		case err == nil:
			b.fact(a.String(), v)
		}
	}
	for _, a := range []gpu.Attribute{0, 9999, -1} {
		b.want(fmt.Sprintf("unknown.%d", a), errOf(b.dev.Attribute(a)), gpu.ErrInvalidValue)
	}
}

// machineAttributes differ between machines with the same GPU.
var machineAttributes = map[gpu.Attribute]bool{
	abi.AttrClockRate: true, abi.AttrPCIBusID: true, abi.AttrPCIDeviceID: true, abi.AttrPCIDomainID: true,
}

// handles shows that all Devices of a GPU share its primary context, and that
// closing one leaves the others open.
func handles(b *bench) {
	two := got(b.drv.Open(0)).ok(b, "open")
	a := b.alloc(gpu.KindDevice, 4096)
	b.ok("copy", two.CopyIn(a, pattern(41, 4096)))
	b.contains("copy.read", a, pattern(41, 4096))
	b.equal("pointer", b.on(two).pointer(a).Kind, gpu.KindDevice)
	b.ok("close", two.Close())
	b.contains("after-close", a, pattern(41, 4096))
	b.ok("still-works", b.dev.Synchronize())
}

// closed calls every method of a closed Device.
func closed(b *bench) {
	d := b.open()
	a, s, e := b.on(d).alloc(gpu.KindDevice, 4096), b.on(d).stream(), b.on(d).event()
	b.must(d.Close())

	const gone = gpu.ErrContextDestroyed
	_, _, err := d.MemInfo()
	b.want("mem-info", err, gone)
	for _, k := range kinds {
		b.want("alloc."+k.String(), errOf(d.Alloc(k, 4096, 0)), gone)
	}
	b.want("free", d.Free(a), gone)
	plain := pages(b, 4096, rw)
	b.want("register", d.Register(host(plain), 4096, 0), gone)
	b.want("unregister", d.Unregister(host(plain)), gone)
	b.want("device-pointer", errOf(d.DevicePointer(host(plain))), gone)
	b.want("pointer", errOf(d.Pointer(a)), gone)
	b.want("sync-memops", d.SetSyncMemops(a, true), gone)
	b.want("export", errOf(d.Export(a, 4096, gpu.ExportDMABuf)), gone)
	b.want("copy-in", d.CopyIn(a, plain), gone)
	b.want("copy-out", d.CopyOut(plain, a), gone)
	b.want("copy", d.Copy(a, a+8, 8), gone)
	b.want("fill", d.Fill(a, 0, 1, 8), gone)
	b.want("new-stream", errOf(d.NewStream()), gone)
	b.want("new-event", errOf(d.NewEvent()), gone)
	b.want("load", errOf(d.Load([]byte(".version 7.0\n.target sm_70\n"))), gone)
	b.want("synchronise", d.Synchronize(), gone)
	b.want("flush", d.FlushWrites(gpu.ScopeOwner), gone)
	b.want("new-context", errOf(d.NewContext(0)), gone)
	b.want("bind", errOf(d.Bind()), gone)
	b.want("close", d.Close(), gone)
	b.want("stream-synchronise", s.Synchronize(), gone)
	b.want("stream-copy", s.Copy(a, a+8, 8), gone)
	b.want("event-synchronise", e.Synchronize(), gone)
}

// closeFrees shows that Close frees memory and unregisters.
func closeFrees(b *bench) {
	const n = 256 << 20
	free := b.freeMemory()
	b.needs(free > 2*n, "512 MiB of free GPU memory")
	plain := pages(b, 65536, rw)
	for range 3 {
		d := b.open()
		b.on(d).alloc(gpu.KindDevice, n/2)
		b.on(d).alloc(gpu.KindVirtual, n/2)
		b.on(d).alloc(gpu.KindHost, 1<<20)
		b.must(d.Register(host(plain), 65536, 0))
		b.ok("close", d.Close())
	}
	after := b.freeMemory()
	b.equal("memory-back", after+n/2 > free, true)
	b.ok("register-again", b.dev.Register(host(plain), 65536, 0))
	b.must(b.dev.Unregister(host(plain)))
}

func contextOther(b *bench) {
	o := got(b.dev.NewContext(gpu.ContextMapHost)).ok(b, "new")
	theirs := b.on(o).alloc(gpu.KindDevice, 4096)
	b.must(o.CopyIn(theirs, pattern(42, 4096)))
	mine := b.alloc(gpu.KindDevice, 4096)
	if b.note("copy-between", b.dev.Copy(mine, theirs, 4096)) == gpu.Success {
		b.contains("copy-between.read", mine, pattern(42, 4096))
	}
	buf := make([]byte, 4096)
	b.note("copy-out-foreign", b.dev.CopyOut(buf, theirs))
	p, err := b.dev.Pointer(theirs)
	b.note("pointer-foreign", err)
	b.result("pointer-foreign.kind", p.Kind)
	b.note("host-foreign", b.dev.Fill(b.on(o).alloc(gpu.KindHost, 4096), 1, 1, 4096))
	b.ok("close", o.Close())
	b.want("closed", o.Synchronize(), gpu.ErrContextDestroyed)
	b.equal("memory-gone", b.pointer(theirs).Kind, gpu.KindNone)
	b.ok("primary-works", b.dev.Fill(mine, 0, 1, 4096))
}

func contextFlags(b *bench) {
	for _, f := range []gpu.Flags{0, gpu.ContextSchedSpin, gpu.ContextSchedYield, gpu.ContextSchedBlocking, gpu.ContextMapHost, gpu.ContextSyncMemops, 3, 0x4000, 1 << 31} {
		o, err := b.dev.NewContext(f)
		if b.note(fmt.Sprintf("%#x", uint32(f)), err) == gpu.Success {
			b.must(o.Close())
		}
	}
}

func bind(b *bench) {
	unbind := got(b.dev.Bind()).ok(b, "bind")
	again := got(b.dev.Bind()).ok(b, "nested")
	b.ok("call-inside", b.dev.Synchronize())
	again()
	unbind()
	unbind() // does nothing
	b.ok("call-after", b.dev.Synchronize())
}

func flush(b *bench) {
	for _, s := range []gpu.Scope{gpu.ScopeOwner, gpu.ScopeAllDevices, 0, 150, -1} {
		b.note(fmt.Sprint(int(s)), b.dev.FlushWrites(s))
	}
}
