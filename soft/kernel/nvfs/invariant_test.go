package nvfs_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// A shadow is a mapped buffer, used without a client.
type shadow struct {
	*fixture
	n    dev.Node
	m    dev.Mapping
	meta []byte
	gpu  uint64
	args abi.IOArgs // of a READ of one GPU page
}

// newShadow maps a buffer of 1 MiB with a window of one GPU page.
func (w *fixture) newShadow(n dev.Node, path string) *shadow {
	w.t.Helper()
	s := &shadow{fixture: w, n: n, meta: w.memory(abi.MetaSize), gpu: w.alloc(1 << 20)}
	var err error
	s.m, err = n.Mmap(0, page, rw)
	w.check(err)
	a := abi.MapArgs{Size: 1 << 20, CPUVAddr: uint64(s.m.Addr()), GPUVAddr: s.gpu, EndFenceAddr: address(s.meta), SbufBlock: 16}
	_, err = ioctl(n, abi.NVFS_IOCTL_MAP, a.Encode)
	w.check(err)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_DIRECT, 0)
	w.check(err)
	w.t.Cleanup(func() { _ = unix.Close(fd) })
	var st unix.Stat_t
	w.check(unix.Fstat(fd, &st))
	s.args = abi.IOArgs{
		CPUVAddr: a.CPUVAddr, Size: page, Inum: st.Ino, Majdev: unix.Major(st.Dev), Mindev: unix.Minor(st.Dev),
		FD: int32(fd), Bits: abi.BitSync,
	}
	return s
}

// read is a READ and its true result.
func (s *shadow) read(change func(a *abi.IOArgs)) (int64, error) {
	a := s.args
	if change != nil {
		change(&a)
	}
	arg, err := ioctl(s.n, abi.NVFS_IOCTL_READ, a.Encode)
	if errors.Is(err, syscall.EPERM) {
		return 0, syscall.Errno(-arg.Return())
	}
	return arg.Return(), err
}

func (w *fixture) node() dev.Node {
	w.t.Helper()
	n, err := dev.Of(w.OS).Open(abi.Path(3))
	w.check(err)
	return n
}

// Invariants A: whatever a program asks for, alignment, range and identity are
// checked before any data moves, and a refused request leaves the mgroup READY
// with the references that it had.
func TestRefusedRequestsMoveNothing(t *testing.T) {
	w := newFixture(t, true, nvfs.Config{Callback: true})
	n := w.node()
	s := w.newShadow(n, w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	canary := bytes.Repeat([]byte{0xcc}, 1<<20)
	rapid.Check(t, func(t *rapid.T) {
		s.Write(s.gpu, canary)
		odd := rapid.SampledFrom([]uint64{1, 512, 4095, 4097, 1 << 20, 1<<20 + 4096, 1 << 62, math.MaxUint64 - 4095})
		wants := syscall.EINVAL
		change := rapid.SampledFrom([]func(a *abi.IOArgs){
			func(a *abi.IOArgs) { a.Offset = int64(odd.Draw(t, "offset")) | 1 },
			func(a *abi.IOArgs) { a.Offset = -4096 },
			func(a *abi.IOArgs) { a.Size = odd.Draw(t, "size") | 1 },
			func(a *abi.IOArgs) { a.Size = 1<<20 + 4096 },
			func(a *abi.IOArgs) { a.Offset, a.Size = math.MaxInt64&^4095, 1<<63-4096 },
			func(a *abi.IOArgs) { a.DevPtrOff = odd.Draw(t, "devptroff") },
			func(a *abi.IOArgs) { a.DevPtrOff = 4096 },
			func(a *abi.IOArgs) { a.CPUVAddr += odd.Draw(t, "cpuvaddr") },
			func(a *abi.IOArgs) { a.FD = -1 },
			func(a *abi.IOArgs) { a.Inum = 0 },
			func(a *abi.IOArgs) { a.Bits = 0 },
			func(a *abi.IOArgs) { a.Inum++; wants = syscall.ESTALE },
			func(a *abi.IOArgs) { a.Majdev ^= 0x55; wants = syscall.ESTALE },
			func(a *abi.IOArgs) { a.Mindev ^= 0x55; wants = syscall.ESTALE },
			func(a *abi.IOArgs) { a.Generation = 0xdeadbeef; wants = syscall.ESTALE },
		}).Draw(t, "change")
		if n, err := s.read(change); !errors.Is(err, wants) {
			t.Fatalf("%d, %v, want %v", n, err, wants)
		}
		if state, refs := w.m.State(s.args.CPUVAddr); state != abi.IO_READY || refs != 2 {
			t.Fatalf("%v, %d references", state, refs)
		}
		if d := firstDiff(s.Read(s.gpu, 1<<20), canary); d != "" {
			t.Fatal(d)
		}
	})
	if n, err := s.read(nil); n != page || err != nil {
		t.Errorf("a good request afterwards: %d, %v", n, err)
	}
	w.check(s.m.Unmap())
	w.check(n.Close())
	w.close()
}

// Invariants A: a second transfer gives EBUSY and moves no data, and another
// mgroup does not notice.
func TestSecondTransferPoisonsItsMgroupAlone(t *testing.T) {
	w := newFixture(t, true, nvfs.Config{Callback: true})
	n := w.node()
	path := w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)})
	s, other := w.newShadow(n, path), w.newShadow(n, path)
	gate := w.Points.Stop("nvfs.chunk")
	first := make(chan error)
	go func() {
		_, err := s.read(func(a *abi.IOArgs) { a.Size = 4 * page })
		first <- err
	}()
	<-gate.Arrived()
	if _, err := s.read(nil); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("second: %v", err)
	}
	gate.Open()
	if err := <-first; !errors.Is(err, syscall.EIO) {
		t.Errorf("first: %v", err)
	}
	if _, err := s.read(nil); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("third: %v", err)
	}
	if state, refs := w.m.State(s.args.CPUVAddr); state != abi.IO_CALLBACK_END || refs != 2 {
		t.Errorf("%v, %d references", state, refs)
	}
	if n, err := other.read(nil); n != page || err != nil {
		t.Errorf("other: %d, %v", n, err)
	}
	w.check(s.m.Unmap())
	w.check(other.m.Unmap())
	w.check(n.Close())
	w.close()
}

// Invariants A: a batch of which one entry is refused starts nothing and leaves
// every mgroup READY.
func TestRefusedBatchStartsNothing(t *testing.T) {
	w := newFixture(t, true, nvfs.Config{})
	n := w.node()
	path := w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)})
	all := []*shadow{w.newShadow(n, path), w.newShadow(n, path), w.newShadow(n, path)}
	entries := w.memory(4096)
	for bad := range 4 {
		for i, s := range all {
			a := s.args
			if i == bad {
				a.Inum++
			}
			a.Encode(entries[i*abi.IOArgsSize:])
		}
		b := abi.BatchArgs{Nents: 3, IOEntries: address(entries)}
		_, err := ioctl(n, abi.NVFS_IOCTL_BATCH_IO, b.Encode)
		if (bad == 3) != (err == nil) {
			t.Errorf("entry %d is bad: %v", bad, err)
		}
		for i, s := range all {
			if state, refs := w.m.State(s.args.CPUVAddr); state != abi.IO_READY || refs != 2 {
				t.Errorf("mgroup %d: %v, %d references", i, state, refs)
			}
			if moved := s.Read(s.gpu, 1)[0] != 0; moved != (bad == 3) {
				t.Errorf("mgroup %d, entry %d is bad: data moved: %v", i, bad, moved)
			}
		}
	}
	for _, s := range all {
		w.check(s.m.Unmap())
	}
	w.check(n.Close())
	w.close()
}

// A prober is a storage module that looks at the table.
type prober struct {
	ops   *nvfs.Ops
	probe func(r *nvfs.Request) error
	gone  int
}

func (p *prober) Name() string                 { return "nvme" }
func (p *prober) Version() string              { return "1" }
func (p *prober) Register(o *nvfs.Ops) error   { p.ops = o; return nil }
func (p *prober) Unregister()                  { p.gone++ }
func (p *prober) Serves(int) bool              { return true }
func (p *prober) Submit(r *nvfs.Request) error { return p.probe(r) }

// A plain is a storage module without hooks.
type plain struct{ t *testing.T }

func (plain) Name() string    { return "sfxvdriver" }
func (plain) Version() string { return "1" }
func (plain) Serves(int) bool { return true }
func (p plain) Submit(*nvfs.Request) error {
	p.t.Error("a module without hooks got a request")
	return nil
}

// half has one of the two symbols.
type half struct{ plain }

func (h half) Register(*nvfs.Ops) error {
	h.t.Error("a module that cannot unregister was registered")
	return nil
}

type decliner struct{ prober }

func (*decliner) Register(*nvfs.Ops) error { return syscall.EOPNOTSUPP }

// Invariants A: a request that mixes pages of the CPU and the GPU fails as a
// whole.
func TestTable(t *testing.T) {
	p := &prober{}
	w := newFixture(t, false, nvfs.Config{Storage: []nvfs.Storage{plain{t}, half{plain{t}}, &decliner{}, p}})
	n := w.node()
	s := w.newShadow(n, w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	p.probe = func(r *nvfs.Request) error {
		cpu := nvfs.Page{Index: 5, Mem: make([]byte, nvfs.BlockSize)}
		gpu := &r.Pages[0]
		if _, k := p.ops.BlkRqMapSG([]nvfs.Page{cpu, cpu}, nil); k != nvfs.NoGPUPages {
			t.Errorf("CPU pages: %d", k)
		}
		for _, mix := range [][]nvfs.Page{{cpu, *gpu}, {*gpu, cpu}, {*gpu, cpu, r.Pages[1]}} {
			if sg, k := p.ops.BlkRqMapSG(mix, nil); k != nvfs.Invalid || len(sg) != 0 {
				t.Errorf("mixed pages: %d", k)
			}
		}
		if k := p.ops.DMAMapSGAttrs(w.Near, []nvfs.SG{{}}); k != nvfs.NotGPUPages {
			t.Errorf("a segment of no GPU: %d", k)
		}
		sg, k := p.ops.BlkRqMapSG(r.Pages, nil)
		if k != 1 || sg[0].Len != page {
			t.Errorf("%d segments: %+v", k, sg)
		}
		if k := p.ops.DMAMapSGAttrs(w.Near, sg); k != 1 || sg[0].Bus == 0 {
			t.Errorf("mapped %d", k)
		}
		if _, refs := w.m.State(s.args.CPUVAddr); refs != 4 { // mapping, pin, transfer, request
			t.Errorf("%d references", refs)
		}
		if _, k := p.ops.BlkRqMapSG(r.Pages, nil); k != 1 { // for the next leg of a mirror
			t.Errorf("blocks for the second leg of a mirror: %d", k)
		}
		p.ops.DMAUnmapSG(sg)
		return nil
	}
	if n, err := s.read(nil); n != page || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	p.probe = func(*nvfs.Request) error { return syscall.ENODATA }
	if _, err := s.read(nil); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("a medium error: %v", err)
	}
	w.check(s.m.Unmap())
	if p.gone != 0 {
		t.Error("the storage module was unregistered under an open file")
	}
	w.check(n.Close())
	if p.gone != 1 {
		t.Errorf("unregistered %d times", p.gone)
	}
	w.close()
}

// A drive that is pulled out is an error, and the buffer can still be closed.
func TestDriveVanishes(t *testing.T) {
	s := newSession(t, true, nvfs.Config{}, 1<<20, page)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	s.Near.Unplug()
	if n, err := s.b.Read(f, 0, 1<<20, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := s.b.Write(f, 0, 1<<20, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %d, %v", n, err)
	}
	s.close()
}

// A file that shrinks under a transfer gives fewer bytes, none of them made up.
func TestFileShrinks(t *testing.T) {
	s := newSession(t, true, nvfs.Config{}, 1<<20, page)
	data := pattern(7, 1<<20)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: data}))
	chunks := 0
	s.Points.Hook(func(name string, _ uint64) {
		if name == "nvfs.chunk" {
			if chunks++; chunks == 4 {
				s.check(os.Truncate(filepath.Join(s.dir, "a"), 4*page-1000))
			}
		}
	})
	n, err := s.b.Read(f, 0, 1<<20, 0)
	if n != 4*page-1000 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	s.Points.Hook(nil)
	if d := firstDiff(s.Read(s.addr, int(n)), data[:n]); d != "" {
		t.Error(d)
	}
	s.close()
}
