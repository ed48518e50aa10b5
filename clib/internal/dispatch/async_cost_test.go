//go:build !race

package dispatch

import (
	"slices"
	"testing"
)

// TestAsyncAllocates counts what cuFileReadAsync in an idle stream and its transfer
// allocate: the goroutine and the receipt of the transfer, and for a stream that is not
// registered what the kernel needs to read the arguments twice.
func TestAsyncAllocates(t *testing.T) {
	p := start(t)
	const n, nonBlocking, allFixed = 4096, 1, 15
	var mem, stream uint64
	p.must("cudaFree", 0)
	p.must("cuMemAlloc_v2", out(&mem), n)
	p.must("cuStreamCreate", out(&stream), nonBlocking)
	h := p.file(make([]byte, n))
	p.must("cuFileBufRegister", mem, n, 0)
	size, off, at, done := new(uint64), new(int64), new(int64), new(int64)
	*size = n
	read := entryNumber("cuFileReadAsync")
	wait := entryNumber("cuStreamSynchronize")
	args, sync := &Words{uint64(h), mem, out(size), out(off), out(at), out(done), stream}, &Words{stream}
	run := func(fn int, a *Words) {
		if v, _ := p.core.Call(fn, p.thread, a); v != 0 {
			t.Fatalf("%s = %d", entries[fn].name, v)
		}
	}
	transfer := func() { run(read, args); run(wait, sync) }
	for range 200 { // the first transfers of a direct route are proved
		transfer()
	}
	waits := testing.AllocsPerRun(100, func() { run(wait, sync) })
	for _, c := range []struct {
		name string
		most float64
	}{{"not registered", 5}, {"registered", 2}} {
		if c.name == "registered" {
			p.must("cuFileStreamRegister", stream, allFixed)
			transfer()
		}
		if got := testing.AllocsPerRun(100, transfer) - waits; got > c.most || *done != n {
			t.Errorf("%s: %v allocations, want at most %v; read %d bytes", c.name, got, c.most, *done)
		}
	}
}

func entryNumber(name string) int {
	return slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
}
