package rm_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/rm"
	"github.com/culvert-io/culvert/internal/wc"
)

// a work is one thing to measure, and what it is compared with.
type work struct {
	name  string
	base  string // work whose time it is a ratio of; may be empty
	reach int
	run   func(i int) error
}

// latency measures stores, loads and reads of files against the driver's own
// copies, in turns, and takes medians.
func (r *hwReport) latency(t *testing.T, d gpu.Device, m *rm.Mapper) {
	const size = 8 << 20
	a := alloc(t, d, gpu.KindVirtual, size)
	w, err := m.Map(a, size)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f := warmFile(t, size)
	buf := make([]byte, 64<<10)
	at := func(i, n int) uint64 { return uint64(i) * 7919 % uint64((size-n)/n) * uint64(n) }
	read := func(n int) func(i int) error {
		return func(i int) error {
			off := at(i, n)
			_, err := f.ReadAt(w.Bytes()[off:off+uint64(n)], int64(off))
			wc.Fence()
			return err
		}
	}
	var list []work
	for _, n := range []int{64, 4 << 10} {
		b := buf[:n]
		copied := fmt.Sprintf("copy in %d", n)
		list = append(list,
			work{copied, "", 500, func(i int) error { return d.CopyIn(a+gpu.Addr(at(i, n)), b) }},
			work{fmt.Sprintf("store %d", n), copied, 5000, func(i int) error { return storeTo(w, at(i, n), b) }},
			work{fmt.Sprintf("copy out %d", n), "", 500, func(i int) error { return d.CopyOut(b, a+gpu.Addr(at(i, n))) }},
			work{fmt.Sprintf("load %d", n), fmt.Sprintf("copy out %d", n), 500, func(i int) error { return loadFrom(w, b, at(i, n)) }},
		)
	}
	for _, n := range []int{4 << 10, 64 << 10} {
		b := buf[:n]
		staged := fmt.Sprintf("pread and copy in %d", n)
		list = append(list,
			work{staged, "", 500, func(i int) error {
				if _, err := f.ReadAt(b, int64(at(i, n))); err != nil && err != io.EOF {
					return err
				}
				return d.CopyIn(a+gpu.Addr(at(i, n)), b)
			}},
			work{fmt.Sprintf("pread %d", n), staged, 2000, read(n)},
		)
	}
	r.measure(t, list)
}

// measure runs each work five times, by turns.
func (r *hwReport) measure(t *testing.T, list []work) {
	times := map[string][]float64{}
	for range 6 { // the first turn warms up
		for _, w := range list {
			start := time.Now()
			for i := range w.reach {
				if err := w.run(i); err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
			}
			times[w.name] = append(times[w.name], float64(time.Since(start).Nanoseconds())/1e3/float64(w.reach))
		}
	}
	for _, w := range list {
		turns := times[w.name][1:]
		slices.Sort(turns)
		r.Micros[w.name] = turns[len(turns)/2]
		if w.base != "" {
			r.Ratios[w.name+" / "+w.base] = r.Micros[w.name] / r.Micros[w.base]
		}
	}
}

// warmFile is a file in the page cache.
func warmFile(t *testing.T, n int) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "warm"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(pattern(n, 5)); err != nil {
		t.Fatal(err)
	}
	return f
}
