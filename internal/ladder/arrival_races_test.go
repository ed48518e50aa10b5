package ladder

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A runFunc is a route with another Run.
type runFunc struct {
	Route
	run func(ctx context.Context, ops []Op, res []route.Receipt) error
}

func (r *runFunc) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	return r.run(ctx, ops, res)
}

// override has the lab's route call run, which gets the honest one.
func (l *liarLab) override(run func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error) {
	honest := l.liar.Route
	l.liar.Route = &runFunc{honest, func(ctx context.Context, ops []Op, res []route.Receipt) error {
		return run(honest, ctx, ops, res)
	}}
}

// onlyDirect requires the lab's route.
func (l *liarLab) onlyDirect() {
	l.t.Helper()
	plan, err := l.plan.Only(l.id)
	if err != nil {
		l.t.Fatal(err)
	}
	l.plan = plan
}

// lies returns what is remembered about the stack.
func (l *liarLab) lies(dir route.Dir) *route.Decline {
	return l.v.file(l.file).known[l.id][dir].lie.Load()
}

// A later read into the same memory that ends before the earlier one is compared is no lie
// of the earlier one's stack.
func TestLaterReadIntoTheSameMemory(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		nested := false
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			err := honest.Run(ctx, ops, res)
			if !nested {
				nested = true
				if r, err := l.run(route.Read, 1<<20, 0, 64<<10); err != nil || r.Arrival != route.ArrivalReported {
					t.Errorf("the later one: %v, %v", &r, err)
				}
			}
			return err
		})
		r, err := l.run(route.Read, 64<<10, 0, 64<<10)
		if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "memory" {
			t.Errorf("the earlier one: %v, %v, %v", &r, err, r.Declined[l.id])
		}
		if d := l.lies(route.Read); d != nil {
			t.Errorf("remembered as a lie: %v", d)
		}
	})
}

// A route that reports the end of a file where it has none is not believed.
func TestShortReadThatIsNoEnd(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		if r, err := l.run(route.Read, 0, 0, 64<<10); err != nil || r.Arrival != route.ArrivalProved {
			t.Fatalf("%v, %v", &r, err)
		}
		short := int64(0)
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			err := honest.Run(ctx, ops, res)
			if short >= 0 {
				res[0].Bytes, res[0].By = short, route.ByRoute{}
			}
			return err
		})
		for _, short = range []int64{0, 4096, 60 << 10} {
			r, err := l.run(route.Read, 64<<10, 0, 64<<10)
			if err != nil || r.Route != route.Host || r.Bytes != 64<<10 || r.Declined[l.id] == nil || r.Declined[l.id].Test != "arrival" {
				t.Errorf("%d bytes reported: %v, %v, %v", short, &r, err, r.Declined[l.id])
			}
			l.forget(false)
		}
		short = -1
		if r, err := l.run(route.Read, liarFile-4096, 0, 64<<10); err != nil || r.Route != l.id || r.Bytes != 4096 {
			t.Errorf("at the end of the file: %v, %v", &r, err)
		}
	})
}

// A required append that stops halfway leaves the file as long as it was.
func TestAppendThatStopsHalfway(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.onlyDirect()
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			half := ops[0]
			half.Mem = half.Mem.Slice(0, half.Mem.Len/2)
			if err := honest.Run(ctx, []Op{half}, res); err != nil {
				return err
			}
			return &RejectedError{decline(l.id, "storage driver", "half of it", ""), nvfs.ErrNotDirect}
		})
		if r, err := l.run(route.Write, liarFile, 0, 64<<10); !isRequire(err) {
			t.Errorf("%v, %v", &r, err)
		}
		if size, err := l.file.Size(); size != liarFile || err != nil {
			t.Errorf("the file has %d bytes, %v", size, err)
		}
	})
}

// Two writes of a batch overlap, and the proof of the first is in its own range: what the
// second saves is what the file had before the proof.
func TestOverlappingWritesAreUndone(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.onlyDirect()
		before := l.fileBytes(0, liarFile)
		l.setGPU(0, noisy(128<<10, 77))
		l.file.Name += "/no-directory" // there can be no file beside it
		l.liar.next, l.liar.first = transformed, 1+legRounds
		ops := make([]Op, 2)
		for i := range ops {
			ops[i] = Op{Dir: route.Write, Src: FileSource(l.file), Off: int64(i) << 12, Mem: l.mem.Slice(0, 128<<10), Kind: gpu.KindDevice, Buf: always{}}
		}
		if err := l.plan.Run(context.Background(), ops, make([]route.Receipt, 2)); !isRequire(err) {
			t.Error(err)
		}
		if !bytes.Equal(l.fileBytes(0, liarFile), before) {
			t.Error("the file has changed")
		}
	})
}

// A proof in place that is cancelled before it is known whether the bytes arrived leaves
// the file as it was.
func TestCancelledProofInPlace(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		before := l.fileBytes(0, liarFile)
		l.setGPU(0, noisy(128<<10, 77))
		l.file.Name += "/no-directory"
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			defer cancel()
			if err := ctx.Err(); err != nil {
				return err
			}
			return honest.Run(ctx, ops, res)
		})
		ops := []Op{{Dir: route.Write, Src: FileSource(l.file), Mem: l.mem.Slice(0, 128<<10), Kind: gpu.KindDevice, Buf: always{}}}
		if err := l.plan.Run(ctx, ops, make([]route.Receipt, 1)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if !bytes.Equal(l.fileBytes(0, liarFile), before) {
			t.Error("the file has changed")
		}

		// No other route will write the range.
		f := l.v.file(l.file)
		f.host = stuckWitness{f.host}
		ctx, cancel = context.WithCancel(context.Background())
		defer cancel()
		if err := l.plan.Run(ctx, ops, make([]route.Receipt, 1)); !errors.Is(err, context.Canceled) || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("cancelled, and the file has changed: %v", err)
		}
	})
}

// Of several first writes one is the proof. If it shows a lie, the others are not made.
func TestOneProofShowsALie(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		op := Op{Dir: route.Write, Src: FileSource(l.file), Mem: l.mem.Slice(0, 64<<10), Kind: gpu.KindDevice, Buf: always{}}
		d := l.v.condemn(l.id, &op, "by the first write")
		err := l.v.proveWrites(t.Context(), l.liar, &l.plan.traits[0], &op)
		if r, ok := errors.AsType[*RejectedError](err); !ok || r.Why != d || l.liar.calls > 0 {
			t.Errorf("%v, %d calls", err, l.liar.calls)
		}
	})
}

// A block device has no time of its last change, and that of a file on another host may be old.
// Another process that writes between a read and the comparison is no lie, unless it happens
// again and again.
func TestUndatedChangeIsNoLie(t *testing.T) {
	for what, set := range map[string]func(*storage.Facts){
		"block device": func(f *storage.Facts) { f.Block = true },
		"nfs":          func(f *storage.Facts) { f.FS = "nfs" },
	} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				set(&l.file.Facts)
				undatedChange(t, l)
			})
		})
	}
}

func undatedChange(t *testing.T, l *liarLab) {
	l.v.trial = trialTransfers
	l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
		err := honest.Run(ctx, ops, res)
		_, werr := pwriteAll(l.file.FD(), noisy(64<<10, byte(l.liar.calls)), ops[0].Off)
		return errors.Join(err, werr, unix.Fsync(l.file.FD()))
	})
	for i := 1; i <= maxStrikes; i++ {
		r, err := l.run(route.Read, 64<<10, 0, 64<<10)
		if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "arrival" {
			t.Fatalf("read %d: %v, %v, %v", i, &r, err, r.Declined[l.id])
		}
		if got := l.lies(route.Read) != nil; got != (i == maxStrikes) {
			t.Errorf("read %d: remembered as a lie: %v", i, got)
		}
	}
}
