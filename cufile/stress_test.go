package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

var (
	stressOps  = flag.Int("cufile.stress", 200_000, "`number` of reads and writes of TestStress")
	stressSeed = flag.Uint64("cufile.seed", 7, "seed of TestStress")
	stressDirs = flag.String("cufile.dirs", "", "`directories` for TestStress, separated by colons (default one on each file system at hand)")
)

const (
	stressWorkers = 16
	stressRegion  = 256 << 10 // of each file that a worker owns
	stressCanary  = 64
)

// A stressFile is a file with a handle for each way to reach it.
type stressFile struct {
	path    string
	handles []*cufile.File
}

// A stressBuffer is memory and what it must hold.
type stressBuffer struct {
	span  gpu.Span
	kind  gpu.Kind
	bytes []byte
	reg   *cufile.Buffer // nil if it is not registered
}

// A worker owns a region of each file, and buffers. No other worker touches them, so
// it knows what every byte must be.
type worker struct {
	f       *fixture
	id      int
	rng     *rand.Rand
	files   []stressFile
	regions [][]byte // by file
	buffers []*stressBuffer
	counts  *stressCounts
}

type stressCounts struct {
	moved     [2]atomic.Int64
	cancelled atomic.Int64
	refused   atomic.Int64
	changed   [changes]atomic.Int64
	byRoute   [16]atomic.Int64
}

// Reads and writes of random alignment from many goroutines, by all routes, into
// all kinds of memory, some of them cancelled, while files are truncated, punched and
// dropped from the page cache and memory is registered and freed: no byte is ever
// wrong, in files, in buffers or around them.
func TestStress(t *testing.T) {
	ops := *stressOps
	if testing.Short() {
		ops /= 20
	}
	f := newFixture(t, softConfig(), 4096)
	files := stressFiles(f)
	var counts stressCounts
	var wg sync.WaitGroup
	for id := range stressWorkers {
		w := newWorker(f, id, files, &counts)
		wg.Go(func() {
			for i := range ops / stressWorkers {
				if err := w.step(i); err != nil {
					t.Errorf("worker %d, step %d: %v", id, i, err)
					return
				}
			}
			if err := w.checkAll(); err != nil {
				t.Errorf("worker %d at the end: %v", id, err)
			}
		})
	}
	wg.Wait()
	counts.report(t, ops)
}

func (c *stressCounts) report(t *testing.T, ops int) {
	t.Helper()
	routes := ""
	for id := range c.byRoute {
		if n := c.byRoute[id].Load(); n > 0 {
			routes += fmt.Sprintf(" %v:%d", route.ID(id), n)
		}
	}
	t.Logf("%d reads, %d writes by%s; %d cancelled, %d refused by a route",
		c.moved[route.Read].Load(), c.moved[route.Write].Load(), routes, c.cancelled.Load(), c.refused.Load())
	if n := c.moved[route.Read].Load() + c.moved[route.Write].Load(); n < int64(ops)/2 {
		t.Errorf("only %d of %d operations did anything", n, ops)
	}
	for what := range c.changed {
		if ops >= 100_000 && c.changed[what].Load() == 0 {
			t.Errorf("change %d never happened", what)
		}
	}
	if c.cancelled.Load() == 0 {
		t.Error("nothing was cancelled in flight")
	}
}

// fileSystems makes a directory on each file system that -cufile.dirs names, or on
// those of temporary files, of the working directory and in memory.
func fileSystems(t *testing.T) (dirs []string) {
	t.Helper()
	places := []string{os.TempDir(), ".", "/dev/shm"}
	if *stressDirs != "" {
		places = filepath.SplitList(*stressDirs)
	}
	seen := map[uint64]bool{}
	for _, place := range places {
		var st unix.Stat_t
		if unix.Stat(place, &st) == nil && seen[st.Dev] {
			continue
		}
		seen[st.Dev] = true
		dir, err := os.MkdirTemp(place, ".cufile-stress")
		if err != nil {
			if *stressDirs != "" {
				t.Fatal(err)
			}
			t.Logf("not on the file system of %s: %v", place, err)
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		dirs = append(dirs, dir)
	}
	return dirs
}

// stressFiles makes files on each file system, and handles with and without O_DIRECT,
// by each route and by the ladder's choice.
func stressFiles(f *fixture) []stressFile {
	f.t.Helper()
	var files []stressFile
	for _, dir := range fileSystems(f.t) {
		for _, flags := range []int{os.O_RDWR, os.O_RDWR | unix.O_DIRECT} {
			s := stressFile{path: filepath.Join(dir, fmt.Sprint("data", flags))}
			if err := os.WriteFile(s.path, make([]byte, stressWorkers*stressRegion), 0o600); err != nil {
				f.t.Fatal(err)
			}
			if s.handles = stressHandles(f, s.path, flags); s.handles != nil {
				files = append(files, s)
			}
		}
	}
	return files
}

func stressHandles(f *fixture, path string, flags int) []*cufile.File {
	f.t.Helper()
	var list []*cufile.File
	for _, id := range []route.ID{route.None, route.NVFS, route.Bar, route.Ring, route.Mapped, route.Host} {
		file, err := os.OpenFile(path, flags, 0)
		if errors.Is(err, unix.EINVAL) && flags&unix.O_DIRECT != 0 {
			return nil // the file system has no O_DIRECT
		}
		if err != nil {
			f.t.Fatal(err)
		}
		h, err := f.drv.Register(file)
		file.Close()
		if err != nil {
			f.t.Fatal(err)
		}
		if id != route.None && h.Require(0, id) != nil {
			h.Close()
			continue
		}
		list = append(list, h)
	}
	return list
}

func newWorker(f *fixture, id int, files []stressFile, counts *stressCounts) *worker {
	f.t.Helper()
	w := &worker{f: f, id: id, rng: rand.New(rand.NewPCG(*stressSeed, uint64(id))), files: files, counts: counts}
	for range files {
		w.regions = append(w.regions, make([]byte, stressRegion))
	}
	for _, kind := range []gpu.Kind{gpu.KindDevice, gpu.KindDevice, gpu.KindVirtual, gpu.KindHost, gpu.KindManaged, gpu.KindNone} {
		n := uint64(stressRegion + 2*4096)
		b := &stressBuffer{kind: kind, bytes: make([]byte, n)}
		if kind == gpu.KindNone {
			mem, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				f.t.Fatal(err)
			}
			f.t.Cleanup(func() { unix.Munmap(mem) })
			b.span.Base = gpu.HostAddr(mem)
		} else {
			a, err := f.dev.Alloc(kind, n, 0)
			if err != nil {
				f.t.Fatal(err)
			}
			b.span.Base = a
		}
		b.span.Len = n
		if kind != gpu.KindManaged && len(w.buffers) != 1 { // one stays unregistered
			var err error
			if b.reg, err = f.drv.RegisterBuffer(b.span.Base, n); err != nil {
				f.t.Fatal(err)
			}
		}
		if err := w.fill(b, 0, n); err != nil {
			f.t.Fatal(err)
		}
		w.buffers = append(w.buffers, b)
	}
	return w
}

// fill puts random bytes into part of a buffer, past the library.
func (w *worker) fill(b *stressBuffer, off, n uint64) error {
	part := b.bytes[off : off+n]
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(w.rng.Uint32())
	}
	rand.NewChaCha8(seed).Read(part)
	if b.kind.OnDevice() {
		return w.f.dev.CopyIn(b.span.Base+gpu.Addr(off), part)
	}
	copy(gpu.HostBytes(b.span.Base+gpu.Addr(off), n), part)
	return nil
}

// check compares part of a buffer with what it must hold.
func (w *worker) check(b *stressBuffer, off, n uint64) error {
	got := make([]byte, n)
	if b.kind.OnDevice() {
		if err := w.f.dev.CopyOut(got, b.span.Base+gpu.Addr(off)); err != nil {
			return err
		}
	} else {
		copy(got, gpu.HostBytes(b.span.Base+gpu.Addr(off), n))
	}
	return same("the buffer", got, b.bytes[off:off+n], int64(off))
}

func same(what string, got, want []byte, at int64) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s is wrong at %d: %#x, want %#x", what, at+int64(i), got[i], want[i])
		}
	}
	return nil
}

// An op is one random transfer.
type stressOp struct {
	dir    route.Dir
	file   int
	h      *cufile.File
	b      *stressBuffer
	off    int64 // in the region
	at, n  uint64
	cancel bool
}

func (o stressOp) String() string {
	return fmt.Sprintf("%v of %d bytes at %d of file %d (%s), %v memory at %d, cancel %v", o.dir, o.n, o.off, o.file, o.h.Name(), o.b.kind, o.at, o.cancel)
}

func (w *worker) pick() stressOp {
	o := stressOp{dir: route.Dir(w.rng.IntN(2)), file: w.rng.IntN(len(w.files)), b: w.buffers[w.rng.IntN(len(w.buffers))]}
	if w.rng.IntN(4) > 0 {
		o.file &^= 1 // O_DIRECT on a disk is slow: less often
	}
	if w.rng.IntN(3) > 0 {
		o.b = w.buffers[w.rng.IntN(3)] // device memory is what has routes: more often
	}
	o.h = w.files[o.file].handles[w.rng.IntN(len(w.files[o.file].handles))]
	o.n = 1 + w.rng.Uint64N(uint64(1)<<(2+w.rng.IntN(15)))
	o.cancel = w.rng.IntN(40) == 0
	if o.cancel || w.rng.IntN(200) == 0 {
		o.n = stressRegion/2 + 1 + w.rng.Uint64N(stressRegion/2)
	}
	o.off = w.rng.Int64N(stressRegion - int64(o.n) + 1)
	o.at = w.rng.Uint64N(o.b.span.Len - o.n + 1)
	if w.rng.IntN(3) == 0 { // aligned in every way that is left
		o.off, o.at = o.off&^4095, o.at&^4095
	}
	return o
}

func (w *worker) step(i int) error {
	o := w.pick()
	if err := w.do(o); err != nil {
		return fmt.Errorf("%v: %w", o, err)
	}
	if i%32 == 0 {
		if err := w.change(o); err != nil {
			return err
		}
	}
	if i%256 == 0 {
		return w.check(o.b, 0, o.b.span.Len)
	}
	return nil
}

// What happens to files and memory between transfers.
const (
	punch = iota
	dropCache
	truncate
	registerAgain
	freeMemory
	changes
)

// change does to the file or the buffer of an operation what other programs and the
// owner of memory do.
func (w *worker) change(o stressOp) error {
	what := w.rng.IntN(changes)
	if what == truncate && w.id != stressWorkers-1 {
		what = punch // the end of the file is the last worker's
	}
	var err error
	if what == registerAgain || what == freeMemory {
		err = w.changeMemory(o.b, what)
	} else {
		err = w.changeFile(o, what)
	}
	if err != nil {
		return fmt.Errorf("change %d after %v: %w", what, o, err)
	}
	w.counts.changed[what].Add(1)
	return nil
}

func (w *worker) changeFile(o stressOp, what int) error {
	f, err := os.OpenFile(w.files[o.file].path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	begin, n := int64(w.id)*stressRegion, int64(o.n)
	switch what {
	case punch:
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, begin+o.off, n)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		clear(w.regions[o.file][o.off : o.off+n])
	case dropCache:
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), begin, stressRegion, unix.FADV_DONTNEED))
	case truncate:
		err = errors.Join(f.Truncate(begin+o.off), f.Truncate(begin+stressRegion))
		clear(w.regions[o.file][o.off:])
	}
	return err
}

func (w *worker) changeMemory(b *stressBuffer, what int) error {
	registered := b.reg != nil
	if registered {
		if err := b.reg.Close(); err != nil {
			return err
		}
		b.reg = nil
	}
	if what == freeMemory && b.kind != gpu.KindNone {
		if err := w.f.dev.Free(b.span.Base); err != nil {
			return err
		}
		var err error
		if b.span.Base, err = w.f.dev.Alloc(b.kind, b.span.Len, 0); err != nil {
			return err
		}
		if err := w.fill(b, 0, b.span.Len); err != nil {
			return err
		}
	}
	if !registered {
		return nil
	}
	var err error
	b.reg, err = w.f.drv.RegisterBuffer(b.span.Base, b.span.Len)
	return err
}

func (w *worker) do(o stressOp) error {
	ctx := context.Background()
	if o.cancel {
		ctx = cancelAfter(w.rng.Int64N(3))
	}
	span := gpu.Span{Base: o.b.span.Base, Off: o.at, Len: o.n}
	call := (*cufile.File).ReadAt
	if o.dir == route.Write {
		call = (*cufile.File).WriteAt
	}
	r, err := call(o.h, ctx, span, int64(w.id)*stressRegion+o.off)
	switch {
	case refused(err):
		w.counts.refused.Add(1)
		return nil
	case errors.Is(err, context.Canceled):
		w.counts.cancelled.Add(1)
		return w.afterCancel(o)
	case err != nil:
		return err
	case r.Bytes != int64(o.n):
		return fmt.Errorf("%d bytes moved", r.Bytes)
	}
	w.counts.moved[o.dir].Add(1)
	w.counts.byRoute[r.Route].Add(1)
	if o.dir == route.Write {
		copy(w.regions[o.file][o.off:], o.b.bytes[o.at:o.at+o.n])
		return nil
	}
	copy(o.b.bytes[o.at:o.at+o.n], w.regions[o.file][o.off:])
	return w.checkAround(o)
}

// checkAround looks at the bytes that were read and at some on both sides.
func (w *worker) checkAround(o stressOp) error {
	from := max(int64(o.at)-stressCanary, 0)
	to := min(o.at+o.n+stressCanary, o.b.span.Len)
	return w.check(o.b, uint64(from), to-uint64(from))
}

// afterCancel finds out what a cancelled transfer has done: for each byte either
// what was asked for, or nothing. From now on nothing more may happen to them.
func (w *worker) afterCancel(o stressOp) error {
	if o.dir == route.Read {
		if err := w.fill(o.b, o.at, o.n); err != nil {
			return err
		}
		runtime.Gosched()
		return w.checkAround(o)
	}
	f, err := os.Open(w.files[o.file].path)
	if err != nil {
		return err
	}
	defer f.Close()
	got := make([]byte, o.n)
	if _, err := f.ReadAt(got, int64(w.id)*stressRegion+o.off); err != nil {
		return err
	}
	old, fresh := w.regions[o.file][o.off:], o.b.bytes[o.at:]
	for i := range got {
		if got[i] != old[i] && got[i] != fresh[i] {
			return fmt.Errorf("after a cancelled write the byte at %d is neither old nor new", o.off+int64(i))
		}
		old[i] = got[i]
	}
	return nil
}

func (w *worker) checkAll() error {
	for _, b := range w.buffers {
		if err := w.check(b, 0, b.span.Len); err != nil {
			return fmt.Errorf("%v memory: %w", b.kind, err)
		}
	}
	for i, s := range w.files {
		f, err := os.Open(s.path)
		if err != nil {
			return err
		}
		got := make([]byte, stressRegion)
		_, err = f.ReadAt(got, int64(w.id)*stressRegion)
		f.Close()
		if err != nil {
			return err
		}
		if err := same(s.path, got, w.regions[i], 0); err != nil {
			return err
		}
	}
	return nil
}

// refused reports whether a route that was required did not take the request.
func refused(err error) bool {
	_, ok := errors.AsType[*route.RequireError](err)
	return ok
}

// rounds is n, or fewer in a short run.
func rounds(n int) int {
	if testing.Short() {
		return max(n/10, 2)
	}
	return n
}
