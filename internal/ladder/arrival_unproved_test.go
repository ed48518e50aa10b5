package ladder

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// opAt is an op between a place of the lab's file and one of its memory.
func (l *liarLab) opAt(dir route.Dir, off, at, n uint64) Op {
	return Op{Dir: dir, Src: l.src[dir], Off: int64(off), Mem: l.mem.Slice(at, n), Kind: gpu.KindDevice, Buf: always{}}
}

// Two reads of a batch have the same memory, or some of it. The others, and what a read has
// alone, are compared as ever, during the trial and after it.
func TestSharedMemoryHidesNoLie(t *testing.T) {
	const n = 32 << 10
	for what, trial := range map[string]int{"on trial": trialTransfers, "trusted": 0} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				l.v.trial = trial
				batch := func() []Op {
					return []Op{
						l.opAt(route.Read, 0, 0, n),
						l.opAt(route.Read, n, n, n), // the same twice
						l.opAt(route.Read, n, n, n),
						l.opAt(route.Read, 2*n, 3*n, n), // each has a half alone
						l.opAt(route.Read, 2*n+n/2, 3*n+n/2, n),
						l.opAt(route.Read, 4*n, 5*n, n),
					}
				}
				run := func(ops []Op) []route.Receipt {
					res := make([]route.Receipt, len(ops))
					check(t, l.plan.Run(context.Background(), ops, res))
					for i := range ops {
						at := ops[i].Mem.Off
						if !bytes.Equal(l.gpuBytes(at, n), l.fileBytes(uint64(ops[i].Off), n)) {
							t.Errorf("read %d: acknowledged wrong bytes: %v", i, &res[i])
						}
					}
					return res
				}
				last := route.ArrivalSampled
				if trial > 0 {
					last = route.ArrivalProved
				}
				for i, want := range []route.Arrival{route.ArrivalProved, route.ArrivalReported, route.ArrivalReported, route.ArrivalSampled, route.ArrivalSampled, last} {
					if res := run(batch()); res[i].Route != l.id || i > 0 && res[i].Arrival != want {
						t.Errorf("read %d: %v, want %v", i, &res[i], want)
					}
				}
				for _, alone := range [][]int{{0, 1, 2}, {1, 2, 5}, {3, 4}} {
					l.forget(false)
					l.liar.next = transformed
					var ops []Op
					for _, i := range alone {
						ops = append(ops, batch()[i])
					}
					for i, r := range run(ops) {
						if r.Route != route.Host {
							t.Errorf("read %d of %v: %v", i, alone, &r)
						}
					}
					l.liar.next = honest
				}
			})
		})
	}
}

// What is alone in the memory of a read.
func TestAlone(t *testing.T) {
	op := Op{Mem: gpu.Span{Base: 1000, Len: 100}}
	for _, c := range []struct {
		others []interval
		want   interval
	}{
		{[]interval{{1000, 1100}}, interval{1000, 1100}}, // itself
		{[]interval{{900, 1000}, {1100, 1200}}, interval{1000, 1100}},
		{[]interval{{900, 1030}}, interval{1030, 1100}},
		{[]interval{{1060, 1200}}, interval{1000, 1060}},
		{[]interval{{1060, 1080}}, interval{1000, 1060}},
		{[]interval{{1010, 1030}}, interval{1030, 1100}},
		{[]interval{{1010, 1030}, {1000, 1100}, {1090, 1100}}, interval{1030, 1090}},
		{[]interval{{1000, 1100}, {1000, 1100}}, interval{1100, 1100}},
		{[]interval{{900, 1200}, {1010, 1030}, {1090, 1300}}, interval{1100, 1100}},
	} {
		s := samples{others: c.others}
		if got := s.alone(&op); got != c.want {
			t.Errorf("others %v: %v, want %v", c.others, got, c.want)
		}
	}
}

// A batch of which one op fails: callers take the others for moved if they are counted, so
// only what has arrived is.
func TestFailedBatchCountsWhatArrived(t *testing.T) {
	const n = 64 << 10
	liarLabs(t, func(t *testing.T, l *liarLab) {
		for _, dir := range []route.Dir{route.Read, route.Write} {
			for _, how := range []lie{honest, transformed} {
				for _, counted := range []int64{n, n / 2, 8} {
					l.forget(false)
					if l.v.trial = trialTransfers; counted < placeSize && dir == route.Read {
						l.v.trial = 0 // no place is in them
						l.v.file(l.file).reads[l.id].Store(true)
					}
					l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
					l.setGPU(0, noisy(2*n, 77))
					fails := &liar{Route: l.liar.Route, v: l.v, files: l.liar.files, next: how}
					honestRoute := l.liar.Route
					l.override(func(_ Route, ctx context.Context, ops []Op, res []route.Receipt) error {
						err := fails.Run(ctx, ops[:1], res[:1])
						res[0].Bytes, res[1].Bytes = counted, int64(2*n)
						return errors.Join(err, unix.ENODEV)
					})
					ops, res := []Op{l.opAt(dir, 0, 0, n), l.opAt(dir, n, n, n)}, make([]route.Receipt, 2)
					if err := l.plan.Run(context.Background(), ops, res); !errors.Is(err, unix.ENODEV) {
						t.Errorf("%v: %v", dir, err)
					}
					want, arrival := int64(0), route.NotDirect
					if how == honest && l.v.trial > 0 {
						want, arrival = counted, route.ArrivalProved
					}
					if res[0].Bytes != want || res[0].Arrival != arrival || res[1].Bytes != 0 {
						t.Errorf("%v, %s, %d bytes reported: %v and %v", dir, lieNames[how], counted, &res[0], &res[1])
					}
					l.liar.Route = honestRoute
				}
			}
		}
	})
}

// A required write that fails after it has begun is undone: a device that answers with an
// error may have stored a staging buffer's bytes.
func TestRequiredWriteThatFailsIsUndone(t *testing.T) {
	for what, proved := range map[string]bool{"after the proof": true, "in place": false} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				l.onlyDirect()
				l.v.file(l.file).known[l.id][route.Write].proved.Store(proved)
				if !proved {
					l.file.Name += "/no-directory"
				}
				before := l.fileBytes(0, liarFile)
				l.override(func(_ Route, _ context.Context, ops []Op, res []route.Receipt) error {
					_, err := pwriteAll(l.file.FD(), make([]byte, ops[0].Mem.Len), ops[0].Off)
					res[0].Bytes = 4096
					return ops[0].failAt(ops[0].Off, "", errors.Join(err, unix.EIO))
				})
				for _, off := range []uint64{4096, liarFile - 4096} {
					r, err := l.run(route.Write, off, 0, 64<<10)
					if !errors.Is(err, unix.EIO) || r.Bytes != 0 {
						t.Errorf("%v, %v", &r, err)
					}
					if size, err := l.file.Size(); size != liarFile || err != nil || !bytes.Equal(l.fileBytes(0, liarFile), before) {
						t.Fatalf("the file has changed, it has %d bytes, %v", size, err)
					}
				}
				f := l.v.file(l.file)
				f.host = stuckWitness{f.host}
				if r, err := l.run(route.Write, 0, 0, 64<<10); !errors.Is(err, unix.EIO) || !errors.Is(err, unix.ENOSPC) {
					t.Errorf("it cannot be undone: %v, %v", &r, err)
				}
				l.override(func(_ Route, _ context.Context, ops []Op, _ []route.Receipt) error {
					return ops[0].failAt(ops[0].Off, "", unix.EPERM)
				})
				if r, err := l.run(route.Write, 128<<10, 0, 64<<10); !errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
					t.Errorf("it cannot be written, and was not: %v, %v", &r, err)
				}
			})
		})
	}
}

// A transfer that the host cannot compare is not known to be right: the next route moves it.
// With the route required it is an error.
func TestTransferThatCannotBeCompared(t *testing.T) {
	for what, trial := range map[string]int{"on trial": trialTransfers, "trusted": 0} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				f := l.v.file(l.file)
				f.known[l.id][route.Write].proved.Store(true)
				f.reads[l.id].Store(true)
				l.v.trial = trial
				f.host = &incomparable{f.host}
				any := l.plan
				only, err := any.Only(l.id)
				check(t, err)
				for dir, off := range map[route.Dir]uint64{route.Read: unreadableAt, route.Write: 0} {
					l.plan = any
					if r, err := l.run(dir, off, 0, 64<<10); err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "proof" {
						t.Errorf("%v: %v, %v, %v", dir, &r, err, r.Declined[l.id])
					}
					l.plan = only
					if r, err := l.run(dir, off, 0, 64<<10); !isRequire(err) || r.Bytes != 0 {
						t.Errorf("%v, required: %v, %v", dir, &r, err)
					}
					if d := l.lies(dir); d != nil {
						t.Errorf("%v: remembered as a lie: %v", dir, d)
					}
				}
			})
		})
	}
}

// An incomparable witness reads no file past caches, and one of its places not at all.
type incomparable struct{ witness }

const unreadableAt = 256 << 10

func (*incomparable) sample([]byte, int64) bool            { return false }
func (*incomparable) readBack([]byte, int64, []byte) error { return unix.EIO }
func (w *incomparable) read(b []byte, off int64) error {
	if off == unreadableAt {
		return unix.EIO
	}
	return w.witness.read(b, off)
}

// A route that counts more than it was asked for, or more than the file has, is not believed.
func TestAnswerThatIsTooLong(t *testing.T) {
	const n = 64 << 10
	for what, trial := range map[string]int{"on trial": trialTransfers, "trusted": 0} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				l.v.trial = trial
				l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
				count := int64(-1)
				l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
					err := honest.Run(ctx, ops, res)
					if count >= 0 {
						res[0].Bytes = count
					}
					return err
				})
				for _, c := range []struct {
					dir   route.Dir
					off   uint64
					count int64
					bytes int64 // by the next route
				}{
					{route.Read, 0, n + 1, n},
					{route.Read, 0, 1 << 40, n},
					{route.Write, 0, n + 1, n},
					{route.Write, 0, 1 << 40, n},
					{route.Read, liarFile - 4096, n, 0},
					{route.Read, liarFile + 4096, n, 0},
				} {
					l.forget(false)
					count = c.count
					plan := l.plan
					if c.bytes == 0 { // the lab's next route does not end with the file
						l.onlyDirect()
					}
					r, err := l.run(c.dir, c.off, 0, n)
					if c.bytes == 0 && !isRequire(err) || c.bytes > 0 && (err != nil || r.Route != route.Host || r.Bytes != c.bytes || r.Declined[l.id].Test != "arrival") {
						t.Errorf("%v of %d bytes at %d, %d reported: %v, %v", c.dir, n, c.off, c.count, &r, err)
					}
					l.plan = plan
				}
				l.forget(false)
				count = -1
				for off, want := range map[uint64]int64{liarFile - 4096: 4096, liarFile: 0, liarFile + 4096: 0} {
					if r, err := l.run(route.Read, off, 0, n); err != nil || r.Bytes != want || r.Declined[l.id] != nil {
						t.Errorf("at %d of a file of %d bytes: %v, %v", off, liarFile, &r, err)
					}
				}
			})
		})
	}
}
