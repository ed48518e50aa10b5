//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/cuda"
)

func TestHotCallsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector")
	}
	f := openFake(t)
	d := f.device()
	defer d.Close()
	s := must(d.NewStream())(t)
	e := must(d.NewEvent())(t)
	a := must(d.Alloc(gpu.KindDevice, 4096, 0))(t)
	buf := make([]byte, 4096)
	for name, do := range map[string]func(){
		"CopyIn":       func() { _ = d.CopyIn(a, buf) },
		"CopyOut":      func() { _ = d.CopyOut(buf, a) },
		"Copy":         func() { _ = d.Copy(a, a+8, 8) },
		"Fill":         func() { _ = d.Fill(a, 1, 4, 8) },
		"Stream.Copy":  func() { _ = s.Copy(a, a+8, 8) },
		"Stream.Write": func() { _ = s.Write(a, 1, 4) },
		"CopyWrite":    func() { _ = s.(*cuda.Stream).CopyWrite(a, a+8, 8, a+16, 1) },
		"Record":       func() { _ = s.Record(e) },
		"Event.Done":   func() { _, _ = e.Done() },
		"Synchronize":  func() { _ = s.Synchronize() },
	} {
		if n := testing.AllocsPerRun(200, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// BenchmarkOverhead is what a call costs on top of the driver's own time.
func BenchmarkOverhead(b *testing.B) {
	f := openFake(b)
	d := f.device()
	defer d.Close()
	s := must(d.NewStream())(b)
	a := must(d.Alloc(gpu.KindDevice, 4096, 0))(b)
	buf := make([]byte, 8)
	m := must(d.Load([]byte(threeParams)))(b)
	fn := must(m.Func("three"))(b)
	for _, bb := range []struct {
		name string
		do   func() error
	}{
		{"CopyOut", func() error { return d.CopyOut(buf, a) }},
		{"CopyIn", func() error { return d.CopyIn(a, buf) }},
		{"StreamCopy", func() error { return s.Copy(a, a+8, 8) }},
		{"Launch", func() error { return s.Launch(fn, gpu.Dim{}, gpu.Dim{}, a, uint32(1), uint64(2)) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
