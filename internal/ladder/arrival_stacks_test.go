package ladder

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/nvme"
)

// Layers that the machine does not show: the probes offer nvfs, and only the proof of
// arrival finds that it is wrong. The bytes are right in both directions; with nvfs
// required it is an error, and the file is as it was.
func TestArrivalOnHiddenStacks(t *testing.T) {
	const size = 512 << 10
	data, other := noisy(size, 1), noisy(size, 2)
	for _, c := range []struct {
		stack         string
		reads, writes bool // by nvfs
	}{
		{"linear+raid1", true, true},
		{"crypt", false, false},
		{"crypt+raid1", false, false},
		{"raid5", true, false},
		{"btrfs", false, false},
		{"compress", false, false},
		{"virtio", false, false},
	} {
		t.Run(c.stack, func(t *testing.T) {
			s := newStacked(t, "hidden:"+c.stack, data)
			s.plan.prover.now = func() time.Time { return time.Now().Add(time.Hour) } // the file is old
			s.plan.prover.wait = func(time.Duration) {}
			only, err := s.plan.Only(route.NVFS)
			s.check(err)
			s.check(s.gpu.CopyIn(s.mem.Base, other))
			if _, err := s.run(only, route.Write); (err == nil) != c.writes {
				t.Errorf("required write: %v", err)
			}
			want := data
			if c.writes {
				want = other
			}
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, want) {
				t.Fatalf("a required write has left other bytes, %v", err)
			}
			if _, err := s.run(only, route.Read); (err == nil) != c.reads {
				t.Errorf("required read: %v", err)
			}
			r, err := s.run(s.plan, route.Read)
			s.check(err)
			got := make([]byte, size)
			s.check(s.gpu.CopyOut(got, s.mem.Base))
			if !bytes.Equal(got, want) || (r.By[route.NVFS] > 0) != c.reads {
				t.Errorf("read: right %v, %v", bytes.Equal(got, want), &r)
			}
			s.check(s.gpu.CopyIn(s.mem.Base, other))
			r, err = s.run(s.plan, route.Write)
			s.check(err)
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, other) || (r.By[route.NVFS] > 0) != c.writes {
				t.Errorf("write: %v, %v", err, &r)
			}
			if d := r.Declined[route.NVFS]; d != nil && strings.Count(d.String(), "fix:") != 1 {
				t.Errorf("%v", d)
			}
		})
	}
}

// Arrays of two drives of which one has a driver without hooks, and which look like any
// other. Of RAID 0 the first chunk is on the drive with hooks, so that a proof of 64 KiB
// passes and a longer write does not; of RAID 1 the drive with hooks has the right bytes,
// and the other one takes the shadow buffer's. Nothing of it stays in the file, also if
// the proof was made in the file itself, and the stack is remembered.
func TestHalfHookedArrays(t *testing.T) {
	const size = 512 << 10
	data, other := noisy(size, 1), noisy(size, 2)
	for _, stack := range []string{"raid0-half", "raid1-half"} {
		for i := range 8 {
			inStream, required, inPlace := i&1 > 0, i&2 > 0, i&4 > 0
			t.Run(fmt.Sprintf("%s/stream=%v/required=%v/in-place=%v", stack, inStream, required, inPlace), func(t *testing.T) {
				s := newStacked(t, stack, data)
				s.ladder.Prepare() // as before every write in a stream
				if inPlace {
					s.file.Name += "/no-directory" // there can be no file beside it
				}
				plan := s.plan
				if required {
					var err error
					plan, err = s.plan.Only(route.NVFS)
					s.check(err)
				}
				s.check(s.gpu.CopyIn(s.mem.Base, other))
				ops := []Op{{Dir: route.Write, Src: FileSource(s.file), Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}, InStream: inStream}}
				res := make([]route.Receipt, 1)
				err := plan.Run(t.Context(), ops, res)
				want := other
				if required {
					want = data
				}
				if (err == nil) != bytes.Equal(want, other) || res[0].By[route.NVFS] > 0 {
					t.Errorf("write: %v, %v", err, &res[0])
				}
				if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, want) {
					t.Errorf("the file has other bytes, %v", err)
				}
				if s.plan.prover.file(s.file).known[route.NVFS][route.Write].lie.Load() == nil {
					t.Error("the stack is trusted with writes")
				}
			})
		}
	}
}

// A write in a stream may not allocate memory for a proof: without it the stack is not
// believed, and the next route writes.
func TestNoProofMemoryInStream(t *testing.T) {
	data, other := noisy(64<<10, 1), noisy(64<<10, 2)
	s := newStacked(t, "", data)
	write := func() route.Receipt {
		s.check(s.gpu.CopyIn(s.mem.Base, other))
		ops := []Op{{Dir: route.Write, Src: FileSource(s.file), Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}, InStream: true}}
		res := make([]route.Receipt, 1)
		s.check(s.plan.Run(t.Context(), ops, res))
		if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, other) {
			t.Errorf("the file has other bytes, %v", err)
		}
		return res[0]
	}
	looked := &lookedAt{Route: s.plan.routes[0]}
	s.plan.routes[0] = looked
	if r := write(); r.By[route.NVFS] > 0 || !strings.Contains(r.Declined[route.NVFS].String(), errNoProofMemory.Error()) {
		t.Errorf("without memory for a proof: %v", &r)
	}
	if looked.n > 0 {
		t.Error("a file was made for a proof that cannot be")
	}
	s.plan.routes[0] = looked.Route
	s.ladder.Prepare()
	if r := write(); r.Route != route.NVFS {
		t.Errorf("with memory for a proof: %v", &r)
	}
}

// A lookedAt route counts the sources that it is asked about.
type lookedAt struct {
	Route
	n int
}

func (l *lookedAt) Traits(src Source) (Traits, *route.Decline) {
	l.n++
	return l.Route.Traits(src)
}

// lyingDrive is a machine with a drive that lies under nvidia-fs, and a file. The places
// that are compared are the same in each run.
func lyingDrive(t *testing.T, liar *nvme.Liar, file, buffer uint64) (s *stacked, l *Ladder) {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 16 << 20, Liar: liar}, "test")
	s = &stacked{T: t, file: directFile(t, noisy(int(file), 3))}
	s.check(err)
	t.Cleanup(func() { s.check(m.Close()) })
	s.gpu, err = m.GPU.Open(0)
	s.check(err)
	a, err := s.gpu.Alloc(gpu.KindDevice, buffer, 0)
	s.check(err)
	l = Open(s.gpu, dev.Of(m), nil, Settings{})
	s.mem = gpu.Span{Base: a, Len: buffer}
	all := s.mem
	l.Register(all, gpu.KindDevice)
	t.Cleanup(func() {
		l.Deregister(all)
		s.check(errors.Join(l.Close(), s.gpu.Free(a), s.gpu.Close()))
	})
	l.prover.now = func() time.Time { return time.Now().Add(time.Hour) }
	l.prover.wait = func(time.Duration) {}
	places := newSamples([32]byte{9})
	l.prover.pool.New = func() any { return places }
	s.plan = l.Plan(FileSource(s.file))
	return s, l
}

// A drive that lies under nvidia-fs: nothing wrong is acknowledged in either direction.
// While the stack is on trial a lie may be about any part of a transfer. A stack that has
// passed is believed by two places: those find every lie about a whole command, also one
// that repeats a block. What is left is in TestDriveThatLiesAboutAPart.
func TestDriveThatLies(t *testing.T) {
	for _, c := range []struct {
		what   string
		trial  int
		liar   *nvme.Liar
		inPage bool // memory begins inside a GPU page: two commands of the drive
	}{
		{"on trial", trialTransfers, &nvme.Liar{OneIn: 4, Seed: 5}, true},
		{"on trial, one block", trialTransfers, &nvme.Liar{OneIn: 4, Seed: 6, Blocks: 1}, true},
		{"trusted", 0, &nvme.Liar{OneIn: 6, Seed: 7}, false},
		{"trusted, one block repeated", 0, &nvme.Liar{OneIn: 2, Seed: 8, Lies: []nvme.Lie{nvme.Duplicate}}, false},
	} {
		t.Run(c.what, func(t *testing.T) { besideLyingDrive(t, c.liar, c.trial, c.inPage) })
	}
}

func besideLyingDrive(t *testing.T, liar *nvme.Liar, trial int, inPage bool) {
	const file, buffer = 2 << 20, 512 << 10
	s, l := lyingDrive(t, liar, file, buffer)
	l.prover.trial = trial
	// The proof before a first write reads 32 blocks, and would not let one pass this drive.
	l.prover.file(s.file).known[route.NVFS][route.Write].proved.Store(true)
	mem := s.mem
	var direct, passed [2]int // by direction
	for i := range *liarTransfers / 2 {
		dir := route.Dir(i % 2)
		n := uint64(4096) << (i / 2 % 6)
		at := uint64(i%2) << 17
		if inPage {
			at += uint64(i/12%16) << 12
		}
		s.mem = mem.Slice(at, n)
		if dir == route.Write {
			s.check(s.gpu.CopyIn(s.mem.Addr(), noisy(int(n), byte(i))))
		}
		off := int64(i*104729%(file/4096-32)) * 4096
		r := s.move(dir, off)
		want := make([]byte, n)
		if _, err := preadFull(s.file, want, off); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		s.check(s.gpu.CopyOut(got, s.mem.Addr()))
		if !bytes.Equal(got, want) {
			t.Fatalf("transfer %d: acknowledged wrong bytes: %v", i, &r)
		}
		if r.Route == route.NVFS {
			direct[dir]++
		} else {
			passed[dir]++
			trust(l.prover, s.file)
		}
	}
	t.Logf("reads and writes by nvfs %v, by another route %v", direct, passed)
	if slices.Contains(direct[:], 0) || slices.Contains(passed[:], 0) {
		t.Error("the test shows nothing")
	}
}

// A drive that lies about a part of a write to a stack that has passed its trial is found
// as often as docs/direct.md says: the sample may be in the part that is right. Memory
// inside a GPU page is two commands, of which one may be a lie.
func TestDriveThatLiesAboutAPart(t *testing.T) {
	const n, trials = 32 << 10, 400
	for _, c := range []struct {
		what   string
		liar   *nvme.Liar
		at     uint64  // in the memory
		missed float64 // of all transfers
	}{
		{"all but one block", &nvme.Liar{OneIn: 1, Lies: []nvme.Lie{nvme.Duplicate}}, 0, 0},
		{"one block", &nvme.Liar{OneIn: 1, Blocks: 1, Lies: []nvme.Lie{nvme.Transform}}, 0, 6.0 / 8},
		{"both commands", &nvme.Liar{OneIn: 1, Lies: []nvme.Lie{nvme.Drop}}, 60 << 10, 0},
		// The first command is one block, the second seven: a quarter of the transfers has a
		// lie in the first only, and a place is there three times in 16. A lie in the second
		// only is always found: of two blocks one is there.
		{"one of two commands", &nvme.Liar{OneIn: 2, Seed: 3, Lies: []nvme.Lie{nvme.Drop}}, 60 << 10, 13.0 / 16 / 4},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, l := lyingDrive(t, c.liar, 1<<20, 256<<10)
			s.mem = s.mem.Slice(c.at, n)
			l.prover.trial = 0
			l.prover.file(s.file).known[route.NVFS][route.Write].proved.Store(true)
			missed := 0
			for i := range trials {
				want := noisy(n, byte(i))
				s.check(s.gpu.CopyIn(s.mem.Addr(), want))
				r := s.move(route.Write, 0)
				got := make([]byte, n)
				_, err := preadFull(s.file, got, 0)
				s.check(err)
				if !bytes.Equal(got, want) {
					missed++
					if r.Route != route.NVFS || r.Arrival != route.ArrivalSampled {
						t.Fatalf("wrong bytes, and not by nvfs: %v", &r)
					}
				}
				trust(l.prover, s.file)
			}
			got := float64(missed) / trials
			if tolerance := 4 * math.Sqrt(c.missed*(1-c.missed)/trials); math.Abs(got-c.missed) > tolerance+1e-9 {
				t.Errorf("missed %.4f, computed %.4f ± %.4f", got, c.missed, tolerance)
			}
		})
	}
}

func (s *stacked) move(dir route.Dir, off int64) route.Receipt {
	s.Helper()
	res := make([]route.Receipt, 1)
	s.check(s.plan.Run(s.Context(), []Op{{Dir: dir, Src: FileSource(s.file), Off: off, Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}}}, res))
	return res[0]
}

// trust forgets what was learned about the stack of a file, as a new process has.
func trust(v *prover, f *storage.File) {
	p := v.file(f)
	for id := range p.known {
		for dir := range p.known[id] {
			p.known[id][dir].lie.Store(nil)
			p.known[id][dir].strikes.Store(0)
			p.known[id][dir].proofs.Store(0)
		}
	}
}
