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
	infos, err := b.drv.Devices()
	b.ok("devices", err)
	for name, i := range map[string]int{"minus-one": -1, "count": len(infos), "huge": 1 << 20} {
		_, err := b.drv.Open(i)
		b.want(name, err, gpu.ErrInvalidDevice)
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
		_, err := b.dev.Attribute(a)
		b.want(fmt.Sprintf("unknown.%d", a), err, gpu.ErrInvalidValue)
	}
}

// machineAttributes differ between machines with the same GPU.
var machineAttributes = map[gpu.Attribute]bool{
	abi.AttrClockRate: true, abi.AttrPCIBusID: true, abi.AttrPCIDeviceID: true, abi.AttrPCIDomainID: true,
}

// handles shows that all handles of a GPU share its primary context, and that
// each closes for itself.
func handles(b *bench) {
	two, err := b.drv.Open(0)
	b.ok("open", err)
	a := b.alloc(gpu.KindDevice, 4096)
	b.ok("copy", two.CopyIn(a, pattern(41, 4096)))
	b.holds("copy.read", a, pattern(41, 4096))
	p, err := two.Pointer(a)
	b.must(err)
	b.equal("pointer", p.Kind, gpu.KindDevice)
	b.ok("close", two.Close())
	b.holds("after-close", a, pattern(41, 4096))
	b.ok("still-works", b.dev.Synchronize())
}

// closed calls everything on a device that was closed.
func closed(b *bench) {
	d, err := b.drv.Open(0)
	b.must(err)
	a, err := d.Alloc(gpu.KindDevice, 4096, 0)
	b.must(err)
	s, err := d.NewStream()
	b.must(err)
	e, err := d.NewEvent()
	b.must(err)
	b.must(d.Close())

	const gone = gpu.ErrContextDestroyed
	_, _, err = d.MemInfo()
	b.want("mem-info", err, gone)
	for _, k := range kinds {
		_, err = d.Alloc(k, 4096, 0)
		b.want("alloc."+k.String(), err, gone)
	}
	b.want("free", d.Free(a), gone)
	plain := pages(b, 4096, rw)
	b.want("register", d.Register(host(plain), 4096, 0), gone)
	b.want("unregister", d.Unregister(host(plain)), gone)
	_, err = d.DevicePointer(host(plain))
	b.want("device-pointer", err, gone)
	_, err = d.Pointer(a)
	b.want("pointer", err, gone)
	b.want("sync-memops", d.SetSyncMemops(a, true), gone)
	_, err = d.Export(a, 4096, gpu.ExportDMABuf)
	b.want("export", err, gone)
	b.want("copy-in", d.CopyIn(a, plain), gone)
	b.want("copy-out", d.CopyOut(plain, a), gone)
	b.want("copy", d.Copy(a, a+8, 8), gone)
	b.want("fill", d.Fill(a, 0, 1, 8), gone)
	_, err = d.NewStream()
	b.want("new-stream", err, gone)
	_, err = d.NewEvent()
	b.want("new-event", err, gone)
	_, err = d.Load([]byte(".version 7.0\n.target sm_70\n"))
	b.want("load", err, gone)
	b.want("synchronise", d.Synchronize(), gone)
	b.want("flush", d.FlushWrites(gpu.ScopeOwner), gone)
	_, err = d.NewContext(0)
	b.want("new-context", err, gone)
	_, err = d.Bind()
	b.want("bind", err, gone)
	b.want("close", d.Close(), gone)
	b.want("stream-synchronise", s.Synchronize(), gone)
	b.want("stream-copy", s.Copy(a, a+8, 8), gone)
	b.want("event-synchronise", e.Synchronize(), gone)
}

// closeFrees leaves memory and registrations to Close.
func closeFrees(b *bench) {
	const n = 256 << 20
	free, _, err := b.dev.MemInfo()
	b.must(err)
	b.needs(free > 2*n, "512 MiB of free GPU memory")
	plain := pages(b, 65536, rw)
	for range 3 {
		d, err := b.drv.Open(0)
		b.must(err)
		for _, k := range []gpu.Kind{gpu.KindDevice, gpu.KindVirtual} {
			_, err = d.Alloc(k, n/2, 0)
			b.must(err)
		}
		_, err = d.Alloc(gpu.KindHost, 1<<20, 0)
		b.must(err)
		b.must(d.Register(host(plain), 65536, 0))
		b.ok("close", d.Close())
	}
	after, _, err := b.dev.MemInfo()
	b.must(err)
	b.equal("memory-back", after+n/2 > free, true)
	b.ok("register-again", b.dev.Register(host(plain), 65536, 0))
	b.must(b.dev.Unregister(host(plain)))
}

func contextOther(b *bench) {
	o, err := b.dev.NewContext(gpu.ContextSchedAuto | gpu.ContextMapHost)
	b.ok("new", err)
	theirs, err := o.Alloc(gpu.KindDevice, 4096, 0)
	b.must(err)
	b.must(o.CopyIn(theirs, pattern(42, 4096)))
	mine := b.alloc(gpu.KindDevice, 4096)
	if b.note("copy-between", b.dev.Copy(mine, theirs, 4096)) == gpu.Success {
		b.holds("copy-between.read", mine, pattern(42, 4096))
	}
	buf := make([]byte, 4096)
	b.note("copy-out-foreign", b.dev.CopyOut(buf, theirs))
	p, err := b.dev.Pointer(theirs)
	b.note("pointer-foreign", err)
	b.result("pointer-foreign.kind", p.Kind)
	h, err := o.Alloc(gpu.KindHost, 4096, 0)
	b.must(err)
	b.note("host-foreign", b.dev.Fill(h, 1, 1, 4096))
	b.ok("close", o.Close())
	b.want("closed", o.Synchronize(), gpu.ErrContextDestroyed)
	p, err = b.dev.Pointer(theirs)
	b.must(err)
	b.equal("memory-gone", p.Kind, gpu.KindNone)
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
	unbind, err := b.dev.Bind()
	b.ok("bind", err)
	again, err := b.dev.Bind()
	b.ok("nested", err)
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
