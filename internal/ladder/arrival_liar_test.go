package ladder

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// liarTransfers is how many transfers each direct route makes beside a liar.
var liarTransfers = flag.Int("liar.transfers", 240, "transfers of each direct route and direction beside a liar")

// A lie is what happens to a transfer that is reported as done.
type lie int

const (
	honest lie = iota
	dropped
	misdirected // to other memory
	delayed     // until the next transfer
	duplicated  // the bytes of another place of the file
	transformed // as by an encrypting layer
	numLies
)

var lieNames = [numLies]string{"honest", "dropped", "misdirected", "delayed", "duplicated", "transformed"}

// A liar is a direct route that reports false successes on request.
type liar struct {
	Route
	v     *prover
	next  lie
	first int // calls before it lies
	late  func()
	calls int
	files map[*storage.File]int // writes to each
}

func (l *liar) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	l.calls++
	if l.late != nil {
		l.late()
		l.late = nil
	}
	now := l.next
	if l.first > 0 {
		l.first--
		now = honest
	}
	if now == honest {
		return l.Route.Run(ctx, ops, res)
	}
	for i := range ops {
		op := ops[i]
		if op.Dir == route.Write {
			l.files[op.file()]++ // nil for a source without one
			l.write(op, now)
		} else if err := l.read(ctx, op, now); err != nil {
			return err
		}
		res[i].Bytes = int64(op.Mem.Len)
	}
	return nil
}

func (l *liar) read(ctx context.Context, op Op, how lie) error {
	run := func(op Op) error { return l.Route.Run(ctx, []Op{op}, make([]route.Receipt, 1)) }
	switch how {
	case misdirected:
		op.Mem.Off = (op.Mem.Off + labSize/2) % labSize
		return run(op)
	case delayed:
		l.late = func() { _ = run(op) }
	case duplicated:
		op.Off = (op.Off + liarFile/2) % liarFile
		return run(op)
	case transformed:
		if err := run(op); err != nil {
			return err
		}
		w, b := l.v.view(l.Route, &op, true), make([]byte, op.Mem.Len)
		if err := w.load(b, 0); err != nil {
			return err
		}
		for i := range b {
			b[i] ^= 0x55
		}
		return w.store(0, b)
	}
	return nil
}

func (l *liar) write(op Op, how lie) {
	w, b := l.v.view(l.Route, &op, true), make([]byte, op.Mem.Len)
	if how == dropped || w.load(b, 0) != nil {
		return
	}
	put := func() { _, _ = op.Src.WriteAt(b, op.Off) }
	switch how {
	case delayed:
		l.late = put
	case transformed:
		for i := range b {
			b[i] ^= 0x55
		}
		put()
	case duplicated: // the bytes of a staging buffer, as of a driver without hooks
		clear(b)
		put()
	}
}

// A liarLab is a file of liarFile bytes and a plan with a liar, and the host below it.
type liarLab struct {
	t    *testing.T
	liar *liar
	v    *prover
	plan *Plan
	file *storage.File // nil for sources without one
	src  [2]Source     // by direction
	mem  gpu.Span
	id   route.ID
}

const liarFile = 2 << 20

// liarLabs has every direct route: nvidia-fs on the software machine, O_DIRECT on
// mapped memory, and a library that is only called.
func liarLabs(t *testing.T, test func(t *testing.T, l *liarLab)) {
	t.Run("nvfs", func(t *testing.T) {
		lab := newLab(t, true, false, nvfs.Config{})
		test(t, newLiarLab(t, lab.GPU, lab.route, lab.mem, route.NVFS))
	})
	t.Run("p2pdma", func(t *testing.T) {
		f := directFile(t, nil)
		g := newPeerGPU(t)
		p := peerRoute(t, g, peerTree(f))
		a, err := g.Alloc(gpu.KindDevice, labSize, 0)
		if err != nil {
			t.Fatal(err)
		}
		mem := gpu.Span{Base: a, Len: labSize}
		p.Register(mem, gpu.KindDevice)
		test(t, newLiarLab(t, g, p, mem, route.P2PDMA))
	})
	t.Run("vendor", func(t *testing.T) {
		device, _ := softDevice(t)
		a, err := device.Alloc(gpu.KindDevice, labSize, 0)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newLiarLab(t, device, library{newHost(device)}, gpu.Span{Base: a, Len: labSize}, route.Vendor))
	})
}

// A library is a route that looks like NVIDIA's: it takes everything.
type library struct{ *hostRoute }

func (l library) Traits(Source) (Traits, *route.Decline) {
	return Traits{ID: route.Vendor, Direct: true, Reads: true, Writes: true, texts: new([numReasons]*route.Decline)}, nil
}

func newLiarLab(t *testing.T, device gpu.Device, r Route, mem gpu.Span, id route.ID) *liarLab {
	t.Helper()
	f := directFile(t, noisy(liarFile, 3))
	if err := unix.Fsync(f.FD()); err != nil {
		t.Fatal(err)
	}
	l := newLiarLabOf(t, device, r, mem, id, [2]Source{FileSource(f), FileSource(f)})
	l.file = f
	return l
}

// newLiarLabOf is a lab of a source to read and one to write, of liarFile bytes.
func newLiarLabOf(t *testing.T, device gpu.Device, r Route, mem gpu.Span, id route.ID, src [2]Source) *liarLab {
	t.Helper()
	l := &liarLab{t: t, src: src, mem: mem, id: id}
	l.liar = &liar{Route: r, files: map[*storage.File]int{}}
	// The next route writes and reads the same memory.
	below := &viewRoute{l: l}
	l.v = newProver(device, tree{}, nil, []Route{r})
	l.v.stacks = new(knownStacks)
	l.v.trial = 0
	l.v.wait = func(time.Duration) {}
	l.v.now = func() time.Time { return time.Now().Add(time.Hour) } // the file is old
	l.v.pool.New = func() any { return newSamples([32]byte{7}) }
	l.liar.v = l.v
	tr, d := r.Traits(src[route.Read])
	if d != nil {
		t.Fatal(d)
	}
	l.plan = &Plan{
		routes: []Route{l.liar, below}, prover: l.v,
		traits: []Traits{tr, {ID: route.Host, Reads: true, Writes: true, HostMemory: true}},
	}
	return l
}

// A viewRoute moves bytes by the CPU, to the memory that the lab looks at.
type viewRoute struct {
	basic
	l *liarLab
}

func (h *viewRoute) Traits(Source) (Traits, *route.Decline) { return Traits{ID: route.Host}, nil }
func (h *viewRoute) State(*Op) State                        { return State{} }

func (h *viewRoute) Run(_ context.Context, ops []Op, res []route.Receipt) (err error) {
	for i := range ops {
		w, b := h.l.v.view(h.l.liar, &ops[i], true), make([]byte, ops[i].Mem.Len)
		if ops[i].Dir == route.Read {
			if _, err = ops[i].Src.ReadAt(b, ops[i].Off); err == nil {
				err = w.store(0, b)
			}
		} else if err = w.load(b, 0); err == nil {
			_, err = ops[i].Src.WriteAt(b, ops[i].Off)
		}
		res[i].Bytes = int64(len(b))
	}
	return err
}

// forget makes the prover trust the stack, but for what was proved, or all.
func (l *liarLab) forget(all bool) {
	for _, src := range l.src {
		p := l.v.fileOf(&Op{Src: src})
		for id := range p.known {
			for dir := range p.known[id] {
				p.known[id][dir].lie.Store(nil)
				p.known[id][dir].strikes.Store(0)
				p.known[id][dir].proofs.Store(0)
				if all {
					p.known[id][dir].proved.Store(false)
				}
			}
			if all {
				p.reads[id].Store(false)
			}
		}
	}
}

func (l *liarLab) run(dir route.Dir, off, at, n uint64) (route.Receipt, error) {
	ops := []Op{{Dir: dir, Src: l.src[dir], Off: int64(off), Mem: l.mem.Slice(at, n), Kind: gpu.KindDevice, Buf: always{}}}
	res := make([]route.Receipt, 1)
	err := l.plan.Run(context.Background(), ops, res)
	return res[0], err
}

// gpuBytes are those of the lab's memory.
func (l *liarLab) gpuBytes(at, n uint64) []byte {
	l.t.Helper()
	op := Op{Mem: l.mem.Slice(at, n)}
	w, b := l.v.view(l.liar, &op, true), make([]byte, n)
	if err := w.load(b, 0); err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *liarLab) setGPU(at uint64, b []byte) {
	l.t.Helper()
	op := Op{Mem: l.mem.Slice(at, uint64(len(b)))}
	w := l.v.view(l.liar, &op, true)
	if err := w.store(0, b); err != nil {
		l.t.Fatal(err)
	}
}

func (l *liarLab) fileBytes(off, n uint64) []byte { return l.bytesOf(route.Read, off, n) }

// bytesOf are those of the source of a direction, as the host sees them.
func (l *liarLab) bytesOf(dir route.Dir, off, n uint64) []byte {
	l.t.Helper()
	b := make([]byte, n)
	if k, err := l.src[dir].ReadAt(b, int64(off)); k != int(n) || err != nil {
		l.t.Fatal(k, err)
	}
	return b
}

// Beside a liar, in each direction of each direct route, nothing that is acknowledged
// is wrong, and every lie is found: while the stack is on trial, and by samples alone.
func TestLiars(t *testing.T) {
	for what, trial := range map[string]int{"on trial": trialTransfers, "trusted": 0} {
		t.Run(what, func(t *testing.T) {
			test := func(t *testing.T, l *liarLab) {
				l.v.trial = trial
				besideLiar(t, l)
			}
			liarLabs(t, test)
			sourceLabs(t, test)
		})
	}
}

func besideLiar(t *testing.T, l *liarLab) {
	for _, dir := range []route.Dir{route.Read, route.Write} {
		l.forget(true)
		rnd := rand.New(rand.NewPCG(11, uint64(dir)))
		told, first := 0, 0
		for i := range *liarTransfers {
			n := uint64(4096) << rnd.IntN(6)
			at := uint64(rnd.IntN(int((labSize/2-n)/4096)+1)) * 4096
			off := uint64(rnd.IntN(int((liarFile-n)/4096)+1)) * 4096
			if dir == route.Write {
				l.setGPU(at, noisy(int(n), byte(i)))
			}
			l.liar.next = honest
			if rnd.IntN(5) == 0 {
				l.liar.next = 1 + lie(rnd.IntN(int(numLies)-1))
			}
			if l.liar.next == misdirected && dir == route.Write {
				l.liar.next = dropped
			}
			if rnd.IntN(20) == 0 {
				l.forget(true) // the next one is the first again
				first++
			}
			r, err := l.run(dir, off, at, n)
			lied := l.liar.next != honest
			if err != nil || r.Bytes != int64(n) {
				t.Fatalf("%v %d: %v, %v", dir, i, &r, err)
			}
			if got, want := l.gpuBytes(at, n), l.bytesOf(dir, off, n); string(got) != string(want) {
				t.Fatalf("%v %d, %s: acknowledged %d bytes at %d that are wrong: %v", dir, i, lieNames[l.liar.next], n, off, &r)
			}
			if d := r.Declined[l.id]; lied != (d != nil) || lied && d.Test != "arrival" || lied != (r.Route == route.Host) {
				t.Fatalf("%v %d, %s: %v, declined %v", dir, i, lieNames[l.liar.next], &r, d)
			}
			if lied {
				told++
				l.forget(false)
			}
		}
		t.Logf("%v: %d transfers, %d lies, none acknowledged", dir, *liarTransfers, told)
		if told == 0 || first == 0 {
			t.Errorf("%v: %d lies, %d first transfers: the test is too honest", dir, told, first)
		}
	}
}

// What a receipt says of a transfer that was compared.
func TestArrivalInReceipts(t *testing.T) {
	test := func(t *testing.T, l *liarLab) {
		for i, want := range []route.Arrival{route.ArrivalProved, route.ArrivalSampled, route.ArrivalSampled} {
			if r, err := l.run(route.Read, uint64(i)<<16, 0, 64<<10); err != nil || r.Route != l.id || r.Arrival != want {
				t.Errorf("read %d: %v, %v, want %v", i, &r, err, want)
			}
		}
		if r, err := l.run(route.Write, 0, 0, 64<<10); err != nil || r.Route != l.id || r.Arrival != route.ArrivalSampled {
			t.Errorf("write: %v, %v", &r, err)
		}
	}
	liarLabs(t, test)
	sourceLabs(t, test)
}
