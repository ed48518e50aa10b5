package gputest

import (
	"github.com/culvert-io/culvert/gpu"
)

var pairCases = []testCase{
	{"two-gpus", twoGPUs},
	{"copy-garbage", copyGarbage},
}

// twoGPUs uses memory of one GPU through the other.
func twoGPUs(b *bench) {
	infos := got(b.drv.Devices()).must(b)
	b.needs(len(infos) > 1, "two GPUs")
	two := got(b.drv.Open(1)).ok(b, "open")
	b.Cleanup(func() { b.must(two.Close()) })
	b.equal("uuids-differ", infos[0].UUID != infos[1].UUID, true)
	b.equal("pci-differ", infos[0].PCI != infos[1].PCI, true)

	const n = 1 << 20
	a := b.alloc(gpu.KindDevice, n)
	c := b.on(two).alloc(gpu.KindDevice, n)
	b.must(b.dev.CopyIn(a, pattern(61, n)))
	b.ok("copy", b.dev.Copy(c, a, n))
	buf := make([]byte, n)
	b.ok("copy-out", two.CopyOut(buf, c))
	b.equal("copy.read", string(buf) == string(pattern(61, n)), true)
	for name, d := range map[string]gpu.Device{"first": b.dev, "second": two} {
		b.equal(name+".device", b.on(d).pointer(c).Device, 1)
	}
	b.want("free-wrong", b.dev.Free(c), gpu.ErrInvalidValue)
	b.ok("free", two.Free(c))
	h := b.alloc(gpu.KindHost, 4096)
	b.note("host", two.Fill(h, 4, 1, 4096))
	v := b.alloc(gpu.KindVirtual, n)
	f := got(b.dev.Export(v, n, gpu.ExportPosixFD)).must(b)
	i, err := two.Import(f, n)
	if b.note("import", err) == gpu.Success {
		b.must(two.Free(i))
	}
	b.must(f.Close())
}
