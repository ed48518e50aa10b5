package ladder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// A proof that the kernel refuses moves nothing and shows no lie.
func TestRefusedProofIsNoLie(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		refuse := true
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			if refuse {
				refuse = false
				return &RejectedError{decline(l.id, "descriptors", "too many open files", ""), unix.EMFILE}
			}
			return honest.Run(ctx, ops, res)
		})
		r, err := l.run(route.Write, 0, 0, 64<<10)
		if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "descriptors" {
			t.Errorf("%v, %v, %v", &r, err, r.Declined[l.id])
		}
		if r, err := l.run(route.Write, 0, 0, 64<<10); err != nil || r.Route != l.id {
			t.Errorf("the next write: %v, %v", &r, err)
		}
	})
}

// A oneFile route is for one file, and for none beside it.
type oneFile struct {
	Route
	src Source
}

func (o *oneFile) Traits(src Source) (Traits, *route.Decline) {
	if src != o.src {
		return Traits{}, decline(route.None, "file system", "data is written through the journal", "")
	}
	return o.Route.Traits(src)
}

// A file beside the caller's may have other attributes, which it has from the directory.
// Then the proof is in place.
func TestProofBesideOtherAttributes(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.liar.Route = &oneFile{l.liar.Route, FileSource(l.file)}
		if r, err := l.run(route.Write, 0, 0, 64<<10); err != nil || r.Route != l.id {
			t.Errorf("%v, %v", &r, err)
		}
	})
}

// A blindWitness fails to read, or has nothing to read with.
type blindWitness struct {
	witness
	can bool
}

func (b blindWitness) readable() bool                       { return b.can }
func (b blindWitness) read([]byte, int64) error             { return unix.EIO }
func (b blindWitness) readBack([]byte, int64, []byte) error { return unix.EIO }

// A proof in place that cannot be made sends the write to the next route. With the route
// required it is an error, and the file is as it was.
func TestNoProofInPlace(t *testing.T) {
	blind := func(can bool) func(*liarLab, *Op) {
		return func(l *liarLab, _ *Op) {
			f := l.v.file(l.file)
			f.host = blindWitness{f.host, can}
		}
	}
	for what, prevent := range map[string]func(*liarLab, *Op){
		"write-only":          blind(false),
		"reads fail":          blind(true),
		"no memory in stream": func(_ *liarLab, op *Op) { op.InStream = true },
	} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				before, data := l.fileBytes(0, liarFile), noisy(64<<10, 77)
				l.setGPU(0, data)
				l.file.Name += "/no-directory"
				ops := []Op{{Dir: route.Write, Src: FileSource(l.file), Mem: l.mem.Slice(0, 64<<10), Kind: gpu.KindDevice, Buf: always{}}}
				prevent(l, &ops[0])
				plan, err := l.plan.Only(l.id)
				check(t, err)
				if err := plan.Run(context.Background(), ops, make([]route.Receipt, 1)); err == nil {
					t.Error("required: no error")
				}
				if l.liar.calls > 0 {
					t.Error("required: the route was called")
				}
				if !bytes.Equal(l.fileBytes(0, liarFile), before) {
					t.Error("required: the file has changed")
				}
				res := make([]route.Receipt, 1)
				if err := l.plan.Run(context.Background(), ops, res); err != nil || res[0].Route != route.Host || res[0].Declined[l.id].Test != "proof" {
					t.Errorf("%v, %v, %v", &res[0], err, res[0].Declined[l.id])
				}
				if !bytes.Equal(l.fileBytes(0, 64<<10), data) {
					t.Error("the file has other bytes")
				}
			})
		})
	}
}

// An append that is dropped leaves the file too short to be read back. The next route
// writes it.
func TestDroppedAppend(t *testing.T) {
	for what, prepare := range map[string]func(*liarLab){
		"on trial": func(l *liarLab) { l.v.trial = trialTransfers },
		"trusted":  func(*liarLab) {},
		"in place": func(l *liarLab) {
			l.v.file(l.file).known[l.id][route.Write].proved.Store(false)
			l.file.Name += "/no-directory"
		},
	} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
				prepare(l)
				data := noisy(64<<10, 77)
				l.setGPU(0, data)
				l.liar.next = dropped
				r, err := l.run(route.Write, liarFile, 0, 64<<10)
				if err != nil || r.Route != route.Host || r.Declined[l.id] == nil || r.Declined[l.id].Test != "arrival" {
					t.Fatalf("%v, %v, %v", &r, err, r.Declined[l.id])
				}
				if !bytes.Equal(l.fileBytes(liarFile, 64<<10), data) {
					t.Error("the file has other bytes")
				}
			})
		})
	}
}

// Writes of a batch that overlap are made one after the other: what one has written is
// compared before the next overwrites it.
func TestOverlappingWritesAreNoLie(t *testing.T) {
	for what, required := range map[string]bool{"required": true, "not required": false} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				if required {
					l.onlyDirect()
				}
				want := l.fileBytes(0, 192<<10)
				data := noisy(256<<10, 77)
				l.setGPU(0, data)
				copy(want, data[:128<<10])
				copy(want[64<<10:], data[128<<10:])
				for range maxStrikes + 1 {
					ops, res := make([]Op, 2), make([]route.Receipt, 2)
					for i := range ops {
						ops[i] = Op{Dir: route.Write, Src: FileSource(l.file), Off: int64(i) << 16, Mem: l.mem.Slice(uint64(i)<<17, 128<<10), Kind: gpu.KindDevice, Buf: always{}}
					}
					if err := l.plan.Run(context.Background(), ops, res); err != nil || res[0].Route != l.id || res[1].Route != l.id {
						t.Fatalf("%v, %v, %v", err, &res[0], &res[1])
					}
					if !bytes.Equal(l.fileBytes(0, 192<<10), want) {
						t.Error("the file has other bytes")
					}
				}
			})
		})
	}
}

// rejects is a route that does not move the bytes of one file.
type rejects struct {
	Route
	file *storage.File
	why  *route.Decline
}

func (r *rejects) State(op *Op) State {
	s := r.Route.State(op)
	if op.file() == r.file {
		s.Learned = r.why
	}
	return s
}

func (r *rejects) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if ops[i].file() == r.file {
			r.why = decline(route.NVFS, "storage driver", "no bytes were moved", "")
			return &RejectedError{r.why, nvfs.ErrNotDirect}
		}
	}
	return r.Route.Run(ctx, ops, res)
}

// A batch writes to two block stacks, of which one does not move bytes of the GPU. The other
// one is trusted as before.
func TestRejectedWriteOfAnotherStack(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		other := directFile(t, noisy(64<<10, 4))
		other.Facts.FS = "other"
		l.liar.Route = &rejects{Route: l.liar.Route, file: other}
		ops, res := make([]Op, 2), make([]route.Receipt, 2)
		for i, f := range []*storage.File{l.file, other} {
			ops[i] = Op{Dir: route.Write, Src: FileSource(f), Mem: l.mem.Slice(uint64(i)<<16, 64<<10), Kind: gpu.KindDevice, Buf: always{}}
			l.v.file(f).known[l.id][route.Write].proved.Store(true)
		}
		check(t, l.plan.Run(context.Background(), ops, res))
		if res[0].Route != l.id || res[1].Route != route.Host {
			t.Errorf("%v, %v", &res[0], &res[1])
		}
		if d := l.lies(route.Write); d != nil {
			t.Errorf("the stack that moves is declined: %v", d)
		}
		if l.v.file(other).known[l.id][route.Write].lie.Load() == nil {
			t.Error("the other one is trusted")
		}
	})
}

// Of writes of a batch that overlap one after the other may be a lie. However many, the next
// route makes them.
func TestSeveralLiesInABatch(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		data, calls := noisy(256<<10, 77), 0
		l.setGPU(0, data)
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			err := honest.Run(ctx, ops, res)
			if calls++; calls == 3 || calls >= 5 { // of three, then of two, then of one
				_, werr := pwriteAll(l.file.FD(), make([]byte, ops[0].Mem.Len), ops[0].Off)
				err = errors.Join(err, werr, unix.Fsync(l.file.FD()))
			}
			return err
		})
		ops, res := make([]Op, 3), make([]route.Receipt, 3)
		for i := range ops {
			ops[i] = Op{Dir: route.Write, Src: FileSource(l.file), Off: int64(i) << 14, Mem: l.mem.Slice(uint64(i)<<16, 32<<10), Kind: gpu.KindDevice, Buf: always{}}
		}
		check(t, l.plan.Run(context.Background(), ops, res))
		want := make([]byte, 64<<10)
		for i := range ops {
			copy(want[ops[i].Off:], data[i<<16:][:32<<10])
		}
		if !bytes.Equal(l.fileBytes(0, 64<<10), want) || calls != 6 {
			t.Errorf("the file has other bytes, or %d calls, want 6: %v", calls, res)
		}
	})
}

// A write waits for one in flight to the same range, also by another open file: each
// would take the other's bytes for a lie, and put back what both have overwritten. One in
// a stream does not wait for one that may wait for the stream.
func TestOverlappingWritesWait(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		write := func(ctx context.Context, off int64, inStream bool) error {
			again := adoptFD(t, l.file.FD())
			ops := []Op{{Dir: route.Write, Src: FileSource(again), Off: off, Mem: l.mem.Slice(64<<10, 64<<10), Kind: gpu.KindDevice, Buf: always{}, InStream: inStream}}
			return l.plan.Run(ctx, ops, make([]route.Receipt, 1))
		}
		nested := false
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			if !nested {
				nested = true
				for _, free := range []int64{0, 128 << 10} {
					check(t, write(ctx, free, false))
				}
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				if err := write(short, 124<<10, false); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a write to a range that is being written: %v", err)
				}
				long, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if err := write(long, 124<<10, true); err != nil {
					t.Errorf("one in a stream: %v", err)
				}
			}
			return honest.Run(ctx, ops, res)
		})
		if r, err := l.run(route.Write, 64<<10, 0, 64<<10); err != nil || r.Route != l.id {
			t.Errorf("%v, %v", &r, err)
		}
		check(t, write(context.Background(), 64<<10, false))
	})
}

// A required write keeps a bounded part of what it overwrites: it is made in pieces, and
// batches in groups. A piece that does not arrive is undone; those before it have arrived.
func TestRequiredWriteInPieces(t *testing.T) {
	const keep = 64 << 10
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.onlyDirect()
		l.v.keep = keep
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		lie, calls := -1, 0
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			if n := totalLen(ops); n > keep {
				t.Errorf("%d bytes at a time", n)
			}
			err := honest.Run(ctx, ops, res)
			if calls++; calls == lie {
				_, werr := pwriteAll(l.file.FD(), make([]byte, ops[0].Mem.Len), ops[0].Off)
				err = errors.Join(err, werr, unix.Fsync(l.file.FD()))
			}
			return err
		})
		old, data := l.fileBytes(0, liarFile), noisy(4*keep-4096, 77)
		l.setGPU(0, data)
		lie = 3
		if r, err := l.run(route.Write, 0, 0, uint64(len(data))); !isRequire(err) {
			t.Errorf("a lie in the third piece: %v, %v", &r, err)
		}
		if want := append(bytes.Clone(data[:2*keep]), old[2*keep:]...); !bytes.Equal(l.fileBytes(0, liarFile), want) {
			t.Error("the first two pieces are not new, or the rest is not old")
		}
		calls, lie = 0, -1
		r, err := l.run(route.Write, 0, 0, uint64(len(data)))
		if err != nil || r.Bytes != int64(len(data)) || r.Route != l.id || r.Arrival != route.ArrivalSampled || calls != 4 {
			t.Errorf("%v, %v, in %d pieces", &r, err, calls)
		}
		if !bytes.Equal(l.fileBytes(0, uint64(len(data))), data) {
			t.Error("the file has other bytes")
		}
		calls = 0
		ops, res := make([]Op, 5), make([]route.Receipt, 5)
		for i := range ops {
			ops[i] = Op{Dir: route.Write, Src: FileSource(l.file), Off: int64(i) << 15, Mem: l.mem.Slice(0, 32<<10), Kind: gpu.KindDevice, Buf: always{}}
		}
		if err := l.plan.Run(context.Background(), ops, res); err != nil || calls != 3 || res[4].Arrival != route.ArrivalSampled {
			t.Errorf("a batch: %v, %v, in %d groups", err, &res[4], calls)
		}
	})
}

// A stuckWitness cannot put back what a write has overwritten.
type stuckWitness struct{ witness }

func (stuckWitness) undo(*saved) error { return unix.ENOSPC }

// A required write that does not arrive and cannot be undone says so.
func TestUndoThatFails(t *testing.T) {
	for what, inPlace := range map[string]bool{"after the proof": false, "in place": true} {
		t.Run(what, func(t *testing.T) {
			liarLabs(t, func(t *testing.T, l *liarLab) {
				l.onlyDirect()
				f := l.v.file(l.file)
				f.host = stuckWitness{f.host}
				f.known[l.id][route.Write].proved.Store(!inPlace)
				if inPlace {
					l.file.Name += "/no-directory"
				}
				l.setGPU(0, noisy(64<<10, 77))
				l.liar.next = transformed
				if r, err := l.run(route.Write, 0, 0, 64<<10); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("%v, %v", &r, err)
				}
			})
		})
	}
}

// A write of any range can be proved in place: its unaligned ends take another route, as
// after the proof.
func TestUnalignedProofInPlace(t *testing.T) {
	const size = 512 << 10
	old, data := noisy(size, 1), noisy(size, 2)
	for _, c := range []struct{ off, n uint64 }{
		{0, 5000}, {100, 12288 - 100}, {100, 100000}, {100, 300000}, {4096, 70000}, {size - 5000, 5000},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s := newStacked(t, "", old)
			s.file.Name += "/no-directory" // there can be no file beside it
			s.check(s.gpu.CopyIn(s.mem.Base, data))
			ops := []Op{{Dir: route.Write, Src: FileSource(s.file), Off: int64(c.off), Mem: s.mem.Slice(c.off, c.n), Kind: gpu.KindDevice, Buf: always{}}}
			res := make([]route.Receipt, 1)
			if err := s.plan.Run(t.Context(), ops, res); err != nil || res[0].By[route.NVFS] == 0 || res[0].Arrival != route.ArrivalProved {
				t.Errorf("%v, %v", err, &res[0])
			}
			want := bytes.Clone(old)
			copy(want[c.off:], data[c.off:][:c.n])
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, want) {
				t.Errorf("the file has other bytes, %v", err)
			}
		})
	}
}

// An error of the device in a proof in place is no error of a write that another route may
// take.
func TestDeviceFailsInProofInPlace(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.file.Name += "/no-directory"
		l.override(func(_ Route, _ context.Context, ops []Op, _ []route.Receipt) error {
			if ops[0].strict { // as nvfs and sources
				return ops[0].failAt(0, "", unix.EIO)
			}
			d := decline(l.id, "input/output", "EIO", "")
			passOn(ops, d)
			return &RejectedError{d, unix.EIO}
		})
		if r, err := l.run(route.Write, 0, 0, 64<<10); err != nil || r.Route != route.Host || r.Declined[l.id].Test != "input/output" {
			t.Errorf("%v, %v", &r, err)
		}
		l.onlyDirect()
		if r, err := l.run(route.Write, 0, 0, 64<<10); !errors.Is(err, unix.EIO) {
			t.Errorf("required: %v, %v", &r, err)
		}
	})
}

// The file for a proof is not longer than files of this process may be: the kernel would send
// SIGXFSZ, which ends a program in C.
func TestProofKeepsToTheFileSizeLimit(t *testing.T) {
	s := newStacked(t, "", noisy(16<<10, 1))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGXFSZ, unix.SIGWINCH)
	defer signal.Stop(signals)
	var old unix.Rlimit
	s.check(unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	s.check(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 16 << 10, Max: old.Max}))
	r, err := s.run(s.plan, route.Write)
	s.check(errors.Join(unix.Setrlimit(unix.RLIMIT_FSIZE, &old), err))
	if r.Route != route.NVFS || r.Arrival != route.ArrivalProved {
		t.Errorf("proved in place: %v", &r)
	}
	// Of pending signals the one with the lowest number comes first, and SIGWINCH has a higher one.
	s.check(unix.Kill(unix.Getpid(), unix.SIGWINCH))
	if got := <-signals; got != unix.SIGWINCH {
		t.Errorf("got %v", got)
	}
}

// A batch that reads and writes a range: a write that is rejected has left bytes in the file
// that nobody wrote. The read before it is not made again.
func TestRejectedWriteAfterARead(t *testing.T) {
	liarLabs(t, func(t *testing.T, l *liarLab) {
		l.v.file(l.file).known[l.id][route.Write].proved.Store(true)
		const n = 64 << 10
		old, data := l.fileBytes(0, n), noisy(n, 77)
		l.setGPU(n, data)
		l.override(func(honest Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			err := honest.Run(ctx, ops, res)
			if ops[0].Dir == route.Write {
				_, werr := pwriteAll(l.file.FD(), make([]byte, n), ops[0].Off)
				err = errors.Join(err, werr, unix.Fsync(l.file.FD()))
			}
			return err
		})
		ops, res := make([]Op, 3), make([]route.Receipt, 3)
		for i := range ops {
			ops[i] = Op{Src: FileSource(l.file), Mem: l.mem.Slice(uint64(i)*n, n), Kind: gpu.KindDevice, Buf: always{}}
		}
		ops[1].Dir = route.Write
		check(t, l.plan.Run(context.Background(), ops, res))
		if got := l.gpuBytes(0, n); !bytes.Equal(got, old) {
			t.Errorf("the read before the write has other bytes than before: new ones: %v, of no one: %v", bytes.Equal(got, data), !bytes.Equal(got, data))
		}
		if !bytes.Equal(l.gpuBytes(2*n, n), data) || !bytes.Equal(l.fileBytes(0, n), data) {
			t.Error("the file, or the read after the write, has other bytes")
		}
		for i, want := range []route.ID{l.id, route.Host, l.id} {
			if res[i].Route != want || res[i].Bytes != n || res[i].Dir != ops[i].Dir || (res[i].Arrival != route.NotDirect) != (want == l.id) {
				t.Errorf("op %d: %v, want %v", i, &res[i], want)
			}
		}
	})
}
