package ladder

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// A fake route moves nothing and remembers its requests.
type fake struct {
	basic
	traits Traits
	absent *route.Decline
	state  State
	err    error
	calls  [][]Op
}

func newFake(id route.ID, max uint64) *fake {
	f := &fake{traits: Traits{ID: id, Reads: true, Writes: true, Max: max, texts: new([numReasons]*route.Decline)}}
	for r := range f.traits.texts {
		if reason(r) != accepted {
			f.traits.texts[r] = decline(id, reasonNames[r], "", "")
		}
	}
	return f
}

var reasonNames = [numReasons]string{
	"accepted", "direction", "memory", "size", "partial block", "unregistered", "no whole block", "unprepared", "phase", "learned", "page cache", "busy", "batch",
}

func (f *fake) Traits(Source) (Traits, *route.Decline) { return f.traits, f.absent }
func (f *fake) State(*Op) State                        { return f.state }

func (f *fake) Run(_ context.Context, ops []Op, res []route.Receipt) error {
	f.calls = append(f.calls, append([]Op(nil), ops...))
	for i := range ops {
		res[i].Bytes = int64(ops[i].Mem.Len)
	}
	return f.err
}

// op reads n bytes to a GPU.
func op(n uint64) Op {
	return Op{Src: memorySource(nil), Mem: gpu.Span{Base: 1, Len: n}, Kind: gpu.KindDevice}
}

// A memorySource is a source without a descriptor, as an object would be.
type memorySource []byte

func (m memorySource) Name() string         { return "memory" }
func (m memorySource) Size() (int64, error) { return int64(len(m)), nil }
func (m memorySource) File() *storage.File  { return nil }

func (m memorySource) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, m[min(off, int64(len(m))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m memorySource) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// declines is the reason why a route alone does not accept an op.
func declines(r Route, o Op, strict bool) *route.Decline {
	t, d := r.Traits(o.Src)
	if d != nil {
		return d
	}
	p := &Plan{routes: []Route{r}, traits: []Traits{t}, strict: strict}
	var why route.Declined
	if p.choose(&o, 0, &why) < 0 {
		return why[t.ID]
	}
	return nil
}

// always is a registration of memory that is never freed.
type always struct{ allocated }

// adopt makes a file of the given bytes.
func adopt(t *testing.T, name string, data []byte) *storage.File {
	t.Helper()
	return adoptIn(t, "", name, data)
}

// adoptIn is adopt with a file in a directory, which is removed in the end.
func adoptIn(t *testing.T, dir, name string, data []byte) *storage.File {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, name)
	t.Cleanup(func() { os.Remove(path) })
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return adoptPath(t, path)
}

func adoptPath(t *testing.T, path string) *storage.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := storage.Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// directFile is a file on a file system with O_DIRECT.
func directFile(t *testing.T, data []byte) *storage.File {
	t.Helper()
	st := adopt(t, "data", data)
	if st.Direct() < 0 {
		t.Skipf("needs a file system with O_DIRECT: %s", st.Facts.Direct.Source)
	}
	return st
}

func noisy(n int, seed byte) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func softDevice(t *testing.T) (gpu.Device, *machine.Machine) {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev, m
}

// A fixture is a GPU of the software machine with its ladder, a warm file and a
// registered buffer of 1 MiB.
type fixture struct {
	device gpu.Device
	ladder *Ladder
	src    Source
	mem    gpu.Span
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	device, m := softDevice(t)
	w := &fixture{device: device, ladder: Open(device, dev.Of(m), nil, Settings{}), src: FileSource(adopt(t, "data", make([]byte, 2<<20)))}
	t.Cleanup(func() {
		if err := w.ladder.Close(); err != nil {
			t.Error(err)
		}
	})
	a, err := device.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.mem = gpu.Span{Base: a, Len: 1 << 20}
	w.ladder.Register(w.mem, gpu.KindDevice)
	t.Cleanup(func() { w.ladder.Deregister(w.mem) })
	return w
}

func (w *fixture) op(n uint64) Op {
	return Op{Src: w.src, Mem: w.mem.Slice(0, n), Kind: gpu.KindDevice, Buf: always{}}
}

// run reads n bytes by a plan.
func (w *fixture) run(t *testing.T, p *Plan, n uint64) route.Receipt {
	t.Helper()
	res := make([]route.Receipt, 1)
	if err := p.Run(context.Background(), []Op{w.op(n)}, res); err != nil || res[0].Bytes != int64(n) {
		t.Fatalf("%v, %v", &res[0], err)
	}
	return res[0]
}

// A freedBuffer is a registration whose memory is gone.
type freedBuffer struct{}

func (freedBuffer) CheckAllocated(gpu.Span) error                      { return route.ErrFreed }
func (freedBuffer) CheckAllocatedCached(gpu.Span, time.Duration) error { return nil }

// adoptFD is a second open file of the file that a descriptor has.
func adoptFD(t *testing.T, fd int) *storage.File {
	t.Helper()
	return adoptPath(t, "/proc/self/fd/"+strconv.Itoa(fd))
}

// readTogether has callers read at the same time, each its own op several times. BAR1 and
// the ring together must move all of each.
func readTogether(t *testing.T, p *Plan, callers, times int, op func(caller uint64) Op) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range uint64(callers) {
		wg.Go(func() {
			for range times {
				o, res := op(i), make([]route.Receipt, 1)
				err := p.Run(context.Background(), []Op{o}, res)
				if r, n := &res[0], int64(o.Mem.Len); err != nil || r.Bytes != n || r.By[route.Bar]+r.By[route.Ring] != n {
					t.Errorf("%v, %v", r, err)
				}
			}
		})
	}
	wg.Wait()
}
