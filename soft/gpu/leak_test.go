package gpu_test

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	softgpu "github.com/culvert-io/culvert/soft/gpu"
)

// resources counts what a process can leak: descriptors, mappings, goroutines.
func resources(t testing.TB) [3]int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	maps, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return [3]int{len(fds), bytes.Count(maps, []byte("\n")), runtime.NumGoroutine()}
}

// settled is what there is when goroutines that have done their work are gone,
// which takes a moment on a busy machine: a stream's is not waited for by those
// who close it.
func settled(t testing.TB, before [3]int) [3]int {
	t.Helper()
	after := resources(t)
	for start := time.Now(); after[2] > before[2] && time.Since(start) < time.Minute; after = resources(t) {
		time.Sleep(time.Millisecond)
	}
	return after
}

// round uses one of everything.
func round(t *testing.T, d *softgpu.Driver, i int, host []byte) {
	x, err := d.Open(0)
	must(t, err)
	n := uint64(1 + i*977%(3<<20))
	dev, virt, pin := alloc(t, x, gpu.KindDevice, n), alloc(t, x, gpu.KindVirtual, n), alloc(t, x, gpu.KindHost, 4096)
	man := alloc(t, x, gpu.KindManaged, 4096)
	at := gpu.HostAddr(host)
	must(t, x.Register(uintptr(at), uint64(len(host)), 0))
	f, err := x.Export(virt, 1, gpu.ExportPosixFD)
	must(t, err)
	imp, err := x.Import(f, n)
	must(t, err)
	l, err := x.(*softgpu.Device).GPU().Acquire(imp, 100)
	must(t, err)
	s, err := x.NewStream()
	must(t, err)
	e, err := x.NewEvent()
	must(t, err)
	must(t, s.Copy(dev, at, min(n, uint64(len(host)))))
	must(t, s.Fill(man, 1, 4, 1024))
	must(t, s.Copy(pin, man, 4096))
	must(t, s.Record(e))
	must(t, e.Synchronize())
	if i%2 == 0 { // the other half is left to Close
		free(t, x, dev)
		free(t, x, pin)
		free(t, x, imp)
		must(t, x.Unregister(uintptr(at)))
		must(t, s.Close())
		must(t, e.Close())
	}
	must(t, f.Close())
	l.Release()
	must(t, x.Close())
}

func TestTenThousandRoundsLeakNothing(t *testing.T) {
	const memory = 64 << 20
	d := open(t, softgpu.Config{Models: tiny(memory)})
	host := pages(t, 65536)
	defer unmap(t, host)
	for i := range 10 {
		round(t, d, i, host)
	}
	before := resources(t)
	rounds := 10_000
	if raceEnabled || testing.Short() {
		rounds = 1000
	}
	for i := range rounds {
		round(t, d, i, host)
	}
	after := settled(t, before)
	// Descriptors and goroutines are exact; the Go runtime maps now and then.
	if after[0] > before[0] || after[2] > before[2] || after[1] > before[1]+20 {
		t.Errorf("descriptors, mappings, goroutines: %d before, %d after", before, after)
	}
	x, err := d.Open(0)
	must(t, err)
	if got := freeMemory(t, x); got != memory {
		t.Errorf("%d bytes free, want %d", got, memory)
	}
}

func TestDriversLeaveNothingBehind(t *testing.T) {
	life := func() {
		d, err := softgpu.New(softgpu.Config{Models: []softgpu.Model{small(softgpu.H200()), small(softgpu.SmallBAR())}})
		must(t, err)
		x, err := d.Open(1)
		must(t, err)
		must(t, x.Fill(alloc(t, x, gpu.KindDevice, 1<<20), 1, 1, 1<<20))
		_, err = x.Export(alloc(t, x, gpu.KindVirtual, 1<<20), 1, gpu.ExportPosixFD)
		must(t, err)
		s := stream(t, x)
		must(t, s.Do(func() {}))
		must(t, d.Close())
	}
	life()
	runtime.GC() // closes the exported files that nobody closed
	before := resources(t)
	for range 50 {
		life()
	}
	runtime.GC()
	if after := settled(t, before); after[1] > before[1]+20 || after[2] > before[2] {
		t.Errorf("descriptors, mappings, goroutines: %d before, %d after", before, after)
	}
}
