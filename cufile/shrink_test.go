package cufile_test

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// A file that shrinks and grows under reads gives short counts, and every byte
// that counts is one that the file had there.
func TestShrinkingFile(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	for id := range f.usable() {
		for _, flags := range []int{os.O_RDONLY, os.O_RDONLY | unix.O_DIRECT} {
			f.shrinkUnder(id, flags)
		}
	}
}

func (f *fixture) shrinkUnder(id route.ID, flags int) {
	f.t.Helper()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { f.shrinkAndGrow(&stop) })
	h := f.open(flags)
	if err := h.Require(0, id); err != nil {
		f.t.Fatal(err)
	}
	buf := f.buffer(uint64(len(f.data)))
	rng := rand.New(rand.NewPCG(11, uint64(id)))
	for range rounds(60) {
		n := 1 + rng.Uint64N(uint64(len(f.data)))
		if id == route.Bar {
			n = min(n, 200<<10)
		}
		off := rng.Int64N(int64(len(f.data)) - int64(n) + 1)
		r, err := h.ReadAt(context.Background(), buf.Span().Slice(0, n), off)
		if refused(err) {
			continue
		}
		if err != nil {
			f.t.Errorf("%v: %v", id, err)
			break
		}
		for i, b := range f.gpuBytes(buf.Span().Slice(0, uint64(r.Bytes))) {
			if b != 0 && b != f.data[off+int64(i)] {
				f.t.Errorf("%v: byte %d of %d is %#x, which the file never had there", id, i, r.Bytes, b)
				break
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	h.Close()
	buf.Close()
}

// shrinkAndGrow cuts the file off, makes the lost part a hole, and fills it.
func (f *fixture) shrinkAndGrow(stop *atomic.Bool) {
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		f.t.Error(err)
		return
	}
	defer file.Close()
	rng := rand.New(rand.NewPCG(12, 13))
	for !stop.Load() {
		cut := rng.Int64N(int64(len(f.data)))
		if err := file.Truncate(cut); err != nil {
			f.t.Error(err)
			return
		}
		if rng.IntN(2) == 0 {
			if err := file.Truncate(int64(len(f.data))); err != nil {
				f.t.Error(err)
				return
			}
		}
		if _, err := file.WriteAt(f.data[cut:], cut); err != nil {
			f.t.Error(err)
			return
		}
	}
}
