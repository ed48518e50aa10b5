package ladder

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A stack that lied is not used again, by any file, and the log says so once.
func TestALieIsRemembered(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		var text bytes.Buffer
		l.v.log = slog.New(slog.NewTextHandler(&text, nil))
		l.liar.next = transformed
		for i := range 3 {
			r, err := l.run(route.Read, uint64(i)<<16, 0, 64<<10)
			if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || !strings.Contains(r.Declined[l.id].Evidence, "GPU memory has") {
				t.Fatalf("%v, %v, %v", &r, err, r.Declined[l.id])
			}
		}
		if l.liar.calls != 1 {
			t.Errorf("the route was tried %d times, want 1", l.liar.calls)
		}
		if r, err := l.run(route.Write, 0, 0, 4096); err != nil || r.Route != route.Host || l.liar.calls != 1 {
			t.Errorf("a write to a stack that lies about reads: %v, %v, %d calls", &r, err, l.liar.calls)
		}
		if d := l.plan.Try(FileSource(l.file)).Describe(); d.Best() != route.Host || len(d.Declined) != 1 || d.Declined[0].Test != "arrival" {
			t.Errorf("a plan afterwards: %v", d)
		}
		if n := strings.Count(text.String(), "did not arrive"); n != 1 || !strings.Contains(text.String(), "evidence=") {
			t.Errorf("logged %d times: %s", n, text.String())
		}
	})
}

// With the route required a lie is an error, and the file is as it was.
func TestALieWithTheRouteRequired(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		plan, err := l.plan.Only(l.id)
		if err != nil {
			t.Fatal(err)
		}
		l.plan = plan
		before := l.fileBytes(0, liarFile)
		for _, c := range []struct {
			dir    route.Dir
			how    lie
			proved bool // the stack's writes were proved, and it lies only now
		}{
			{route.Read, dropped, false},
			{route.Read, transformed, false},
			{route.Write, transformed, false},
			{route.Write, duplicated, false},
			{route.Write, transformed, true},
			{route.Write, duplicated, true},
		} {
			l.forget(true)
			l.v.file(l.file).known[l.id][c.dir].proved.Store(c.proved)
			l.setGPU(0, noisy(128<<10, 77))
			l.liar.next = c.how
			if r, err := l.run(c.dir, 64<<10, 0, 128<<10); !isRequire(err) {
				t.Errorf("%v %s: %v, %v", c.dir, lieNames[c.how], &r, err)
			}
			if !bytes.Equal(l.fileBytes(0, liarFile), before) {
				t.Fatalf("%v %s, proved %v: the file has changed", c.dir, lieNames[c.how], c.proved)
			}
		}
		// An append that does not arrive leaves the file as long as it was.
		l.forget(true)
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		if r, err := l.run(route.Write, liarFile, 0, 64<<10); !isRequire(err) {
			t.Errorf("append: %v, %v", &r, err)
		}
		if size, err := l.file.Size(); size != liarFile || err != nil {
			t.Errorf("the file has %d bytes, %v", size, err)
		}
	})
}

// A proof in the op's own range may pass and the rest of the write not arrive: on RAID 0
// with one drive whose driver has no hooks, the first chunk moves. The file is as it was,
// with what the proof wrote.
func TestALieAfterAProofInPlace(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		plan, err := l.plan.Only(l.id)
		if err != nil {
			t.Fatal(err)
		}
		before := l.fileBytes(0, liarFile)
		l.setGPU(0, noisy(128<<10, 77))
		l.file.Name += "/no-directory" // there can be no file beside it
		l.liar.next, l.liar.first = transformed, 1+legRounds
		ops := []Op{{Dir: route.Write, Src: FileSource(l.file), Off: 64 << 10, Mem: l.mem.Slice(0, 128<<10), Kind: gpu.KindDevice, Buf: always{}}}
		if err := plan.Run(context.Background(), ops, make([]route.Receipt, 1)); !isRequire(err) || l.liar.calls != 2+legRounds {
			t.Errorf("%v after %d calls, want %d", err, l.liar.calls, 2+legRounds)
		}
		if !bytes.Equal(l.fileBytes(0, liarFile), before) {
			t.Error("the file has changed")
		}
	})
}

// Writes of a stack are proved before the first one touches the caller's file: on
// RAID 5 a read moves, and a write stores what the staging buffer has.
func TestWritesAreProvedElsewhere(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		l.liar.next = duplicated
		r, err := l.run(route.Write, 0, 0, 64<<10)
		if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "arrival" {
			t.Errorf("%v, %v", &r, err)
		}
		if l.liar.files[l.file] != 0 || len(l.liar.files) != 1 {
			t.Errorf("the caller's file was written to %d times; %d files in all", l.liar.files[l.file], len(l.liar.files))
		}
		l.liar.next = honest
		if r, err := l.run(route.Read, 64<<10, 0, 64<<10); err != nil || r.Route != l.id {
			t.Errorf("reads are not affected: %v, %v", &r, err)
		}
		if d := l.plan.Try(FileSource(l.file)).Describe(); d.Best() != l.id || !strings.Contains(d.Uses[0].For, "only reads") {
			t.Errorf("a plan afterwards: %v", d)
		}
	})
}

// The proof is made once for a stack.
func TestWritesAreProvedOnce(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		for i := range 3 {
			if r, err := l.run(route.Write, uint64(i)<<16, 0, 64<<10); err != nil || r.Route != l.id {
				t.Fatalf("%v, %v", &r, err)
			}
		}
		if want := 3 + 1 + legRounds; l.liar.calls != want {
			t.Errorf("the route was called %d times for three requests, want %d", l.liar.calls, want)
		}
	})
}

// A changingRoute is a route under which the file is truncated and filled with other bytes
// while it reads.
type changingRoute struct {
	Route
	change func()
}

func (c *changingRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	if change := c.change; change != nil {
		c.change = nil
		change()
	}
	return c.Route.Run(ctx, ops, res)
}

// A file that changes under a read does not condemn the stack: the next route reads
// it, this time.
func TestChangingFileIsNoLie(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		c := &changingRoute{Route: l.liar.Route}
		l.liar.Route = c
		other := noisy(liarFile, 99)
		change := func() {
			if err := errors.Join(unix.Ftruncate(l.file.FD(), 0), unix.Fsync(l.file.FD())); err != nil {
				t.Error(err)
			}
			if _, err := pwriteAll(l.file.FD(), other, 0); err != nil {
				t.Error(err)
			}
		}
		for _, old := range []bool{true, false} {
			// Whether or not the clock shows the change, the bytes do.
			l.v.now = func() time.Time {
				if old {
					return time.Now().Add(time.Hour)
				}
				return time.Now()
			}
			c.change = change
			r, err := l.run(route.Read, 128<<10, 0, 64<<10)
			if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "file" {
				t.Fatalf("%v, %v, %v", &r, err, r.Declined[l.id])
			}
			if !bytes.Equal(l.gpuBytes(0, 64<<10), l.fileBytes(128<<10, 64<<10)) {
				t.Error("wrong bytes")
			}
			if r, err := l.run(route.Read, 256<<10, 0, 64<<10); err != nil || r.Route != l.id || r.Arrival != route.ArrivalSampled {
				t.Errorf("the next read: %v, %v", &r, err)
			}
			other = noisy(liarFile, 100)
		}
		// With the route required, the read is repeated.
		plan, err := l.plan.Only(l.id)
		if err != nil {
			t.Fatal(err)
		}
		l.plan, c.change = plan, change
		other = noisy(liarFile, 101)
		if r, err := l.run(route.Read, 128<<10, 0, 64<<10); err != nil || r.Arrival != route.ArrivalSampled {
			t.Errorf("required: %v, %v", &r, err)
		}
	})
}

// Two reads into the same memory at a time: the sentinels of one are no lie of the
// other.
func TestReadsIntoTheSameMemory(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		c := &changingRoute{Route: l.liar.Route}
		l.liar.Route = c
		c.change = func() {
			if r, err := l.run(route.Read, 64<<10, 32<<10, 64<<10); err != nil || r.Arrival != route.ArrivalSampled {
				t.Errorf("the later one: %v, %v", &r, err)
			}
			if r, err := l.run(route.Read, 64<<10, 4096, 16<<10); err != nil || r.Arrival != route.ArrivalReported {
				t.Errorf("one that has no memory alone: %v, %v", &r, err)
			}
		}
		if r, err := l.run(route.Read, 64<<10, 0, 64<<10); err != nil || r.Arrival != route.ArrivalSampled {
			t.Errorf("the earlier one: %v, %v", &r, err)
		}
		ops, res := make([]Op, 2), make([]route.Receipt, 2)
		for i := range ops {
			ops[i] = Op{Src: FileSource(l.file), Off: 0, Mem: l.mem.Slice(0, 64<<10), Kind: gpu.KindDevice, Buf: always{}}
		}
		if err := l.plan.Run(context.Background(), ops, res); err != nil || res[1].Arrival != route.ArrivalReported || res[1].Route != l.id {
			t.Errorf("in one batch: %v, %v", &res[1], err)
		}
	})
}

// Memory that was freed under a read is freed memory, and no lie.
func TestFreedMemoryIsNoLie(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.liar.next = dropped
		ops := []Op{{Src: FileSource(l.file), Mem: l.mem.Slice(0, 64<<10), Kind: gpu.KindDevice, Buf: freedBuffer{}}}
		err := l.v.run(context.Background(), l.liar, &l.plan.traits[0], ops, make([]route.Receipt, 1))
		if !errors.Is(err, route.ErrFreed) || l.v.file(l.file).known[l.id][route.Read].lie.Load() != nil {
			t.Errorf("%v, lie %v", err, l.v.file(l.file).known[l.id][route.Read].lie.Load())
		}
	})
}

// A lost part of 64 KiB is found in every read: each has a sentinel.
func TestLostPartIsFound(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, labSize); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		l.liar.Route = &losing{l.liar.Route}
		for i := range 30 {
			if r, err := l.run(route.Read, uint64(i)<<12, 0, labSize); err != nil || r.Route != route.Host {
				t.Fatalf("read %d: %v, %v", i, &r, err)
			}
			l.forget(false)
		}
	})
}

// A losing route loses the first 64 KiB of every read.
type losing struct{ Route }

func (l *losing) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	op := ops[0]
	op.Off, op.Mem = op.Off+64<<10, op.Mem.Slice(64<<10, op.Mem.Len-64<<10)
	err := l.Route.Run(ctx, []Op{op}, res)
	res[0].Bytes = int64(ops[0].Mem.Len)
	return err
}

// Bytes that an earlier read left are not those of the first read of a file.
func TestFirstReadFillsMemory(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.setGPU(0, l.fileBytes(0, 64<<10))
		l.liar.next = dropped
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Route != route.Host {
			t.Errorf("%v, %v", &r, err)
		}
	})
}

// A first read that fails leaves the memory as it was.
func TestFailedFirstReadLeavesMemory(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		want := noisy(64<<10, 5)
		l.setGPU(0, want)
		l.liar.Route = &failing{l.liar.Route}
		if _, err := l.run(route.Read, 0, 0, 64<<10); !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		if !bytes.Equal(l.gpuBytes(0, 64<<10), want) {
			t.Error("the memory has changed")
		}
	})
}

func isRequire(err error) bool {
	_, ok := errors.AsType[*route.RequireError](err)
	return ok
}

type failing struct{ Route }

func (failing) Run(context.Context, []Op, []route.Receipt) error { return unix.EIO }

// A faultyPart is wrong bytes of a transfer.
type faultyPart struct{ size, from, len int64 }

func (p faultyPart) has(at int64) bool { return at >= p.from && at < p.from+p.len }

// foundBy reports whether a pair of places is in the part.
func (p faultyPart) foundBy(pairs []pair) bool {
	return slices.ContainsFunc(pairs, func(q pair) bool { return p.has(q.at[0]) || p.has(q.at[1]) })
}

// probability checks how often found is true.
func probability(t *testing.T, p faultyPart, want float64, found func() bool) {
	t.Helper()
	const trials = 8000
	n := 0
	for range trials {
		if found() {
			n++
		}
	}
	got := float64(n) / trials
	if tolerance := 4 * math.Sqrt(want*(1-want)/trials); math.Abs(got-want) > tolerance+1e-9 {
		t.Errorf("%d bytes at %d of %d: found %.4f, computed %.4f ± %.4f", p.len, p.from, p.size, got, want, tolerance)
	}
}

// The probability that one read with a fault in a part of it is found is what
// docs/direct.md says.
func TestDetectionProbability(t *testing.T) {
	s := newSamples([32]byte{5})
	for _, c := range []struct {
		faultyPart
		lost, changed float64 // the bytes did not arrive, or are other bytes
	}{
		{faultyPart{1 << 20, 832 << 10, 64 << 10}, 1, 17.0 / 256},
		{faultyPart{1 << 20, 832 << 10, 4 << 10}, 1 - 15.0/16*254/256, 2.0 / 256},
		{faultyPart{1 << 20, 512 << 10, 512 << 10}, 1, 257.0 / 512},
		{faultyPart{1 << 20, 4 << 10, 1020 << 10}, 1, 1}, // all but one block: a drive that repeats it
		{faultyPart{64 << 10, 32 << 10, 4 << 10}, 1 - 15.0/16*14/16, 2.0 / 16},
		{faultyPart{2 << 20, 0, 1 << 20}, 1, 1},
		// Not a multiple of 64 KiB: two sentinels, and a neighbour of 32 places is in the part.
		{faultyPart{127 << 10, 0, 64 << 10}, 1, (1024.0 + 32) / 2032},
		{faultyPart{16 << 20, 3 << 20, 64 << 10}, 1 - 3.0/4*(1-17*31.0/4096), 17 * 31.0 / 4096},
	} {
		for _, lost := range []bool{true, false} {
			want := c.changed
			if lost {
				want = c.lost
			}
			probability(t, c.faultyPart, want, func() bool {
				s.pairs = s.pairs[:0]
				hit := c.foundBy(s.choosePairs(0, c.size, readPairs(c.size)))
				st := newSteps(0, c.size, readSentinels(c.size), s.rand.Uint64())
				for k := range st.count {
					hit = hit || lost && c.has(st.place(k))
				}
				return hit
			})
		}
	}
}

// The same for one write. A place is as often in each block, and a second one in the
// block before or after it.
func TestWriteDetectionProbability(t *testing.T) {
	s := newSamples([32]byte{6})
	for _, c := range []struct {
		faultyPart
		want float64
	}{
		{faultyPart{32 << 10, 0, 4 << 10}, 1.0/8 + 1.0/16}, // the first block has one neighbour
		{faultyPart{32 << 10, 8 << 10, 4 << 10}, 2.0 / 8},
		{faultyPart{32 << 10, 4 << 10, 28 << 10}, 1}, // all but one block: a drive that repeats it
		{faultyPart{32 << 10, 0, 28 << 10}, 1},
		{faultyPart{1 << 20, 512 << 10, 512 << 10}, 257.0 / 512},
		{faultyPart{1 << 20, 64 << 10, 64 << 10}, 17.0 / 256},
		{faultyPart{1 << 20, 64 << 10, 4 << 10}, 2.0 / 256},
		{faultyPart{16 << 20, 3 << 20, 1 << 20}, 1},
		{faultyPart{64 << 20, 0, 1 << 20}, 1.0 / 4},
	} {
		probability(t, c.faultyPart, c.want, func() bool {
			s.pairs = s.pairs[:0]
			return c.foundBy(s.choosePairs(0, c.size, writePairs(c.size)))
		})
	}
}

// The first transfers of a stack are compared in full, in each direction, and those of
// another file on it are not. A write that reads back otherwise begins the trial again.
func TestTrial(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		const trial = 3
		l.v.trial = trial
		n := 0
		run := func(dir route.Dir) route.Arrival {
			t.Helper()
			n++
			r, err := l.run(dir, uint64(n%8)<<16, 0, 64<<10)
			if err != nil {
				t.Fatalf("%v %d: %v, %v", dir, n, &r, err)
			}
			return r.Arrival
		}
		expect := func(what string, dir route.Dir, proved int) {
			t.Helper()
			for i := range proved + 2 {
				want := route.ArrivalSampled
				if i < proved {
					want = route.ArrivalProved
				}
				if got := run(dir); got != want {
					t.Errorf("%s: %v %d: %v, want %v", what, dir, i, got, want)
				}
			}
		}
		expect("a new stack", route.Read, trial)
		expect("a new stack", route.Write, trial)
		l.liar.next = transformed
		l.setGPU(0, noisy(64<<10, 9))
		if got := run(route.Write); got != route.NotDirect {
			t.Errorf("a lie: %v", got)
		}
		l.liar.next = honest
		expect("after a strike", route.Write, trial)
		l.file = directFile(t, noisy(liarFile, 4))
		l.src = [2]Source{FileSource(l.file), FileSource(l.file)}
		expect("another file", route.Read, 1) // its first read
		expect("another file", route.Write, 0)
	})
}
