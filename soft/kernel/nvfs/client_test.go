package nvfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmestorage"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A session is a client with a buffer in a fixture.
type session struct {
	*fixture
	c     *client.Client
	b     *client.Buffer
	addr  uint64
	drive *nvmestorage.Driver // that has hooks
}

func newSession(t testing.TB, hooks bool, cfg nvfs.Config, size uint64, shadow int) *session {
	t.Helper()
	s := &session{}
	if hooks {
		s.drive = nvmestorage.New(func() (*pcie.Function, error) { return s.Near, nil }, false)
		cfg.Storage = []nvfs.Storage{s.drive}
	}
	s.fixture = newFixture(t, false, cfg)
	var err error
	s.c, err = client.Open(dev.Of(s.OS))
	s.check(err)
	s.addr = s.alloc(size)
	s.b, err = s.c.Register(client.Config{Addr: s.addr, Size: size, Shadow: shadow, Zero: s.zero})
	s.check(err)
	return s
}

func (s *session) zero(addr, n uint64) error {
	return s.GPU.Fill(gpu.Addr(addr), 0, 1, n)
}

func (s *session) close() {
	s.t.Helper()
	s.check(s.c.Close())
	s.fixture.close()
}

// open opens a file of the fixture for the client.
func (s *session) open(path string) *client.File {
	s.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	s.check(err)
	look, err := os.Open(path)
	s.check(err)
	s.t.Cleanup(func() { _ = errors.Join(f.Close(), look.Close()) })
	n, err := client.NewFile(path, int(f.Fd()), int(look.Fd()))
	s.check(err)
	return n
}

const block = 4096

// Invariants A: bytes land at gpuvaddr + devptroff + (file position - offset),
// whatever the shadow window's size; every block of a successful READ is either
// DMA'd or a hole; shadow pages are never data. No byte passes host memory.
func TestBytesLandWhereTheyShould(t *testing.T) {
	for _, shadow := range []int{page, 2 * page, 1 << 20} {
		const size = 1 << 20
		s := newSession(t, true, nvfs.Config{}, size, shadow)
		rng := rand.New(rand.NewPCG(1, uint64(shadow)))
		model := make([]byte, size-1000)
		parts := map[int64][]byte{}
		for i := int64(0); i+block < int64(len(model)); i += block {
			if rng.IntN(3) > 0 {
				parts[i] = pattern(rng.IntN(256), block)
				copy(model[i:], parts[i])
			}
		}
		f := s.open(s.file("f", int64(len(model)), parts))
		mem := bytes.Repeat([]byte{0xee}, size)
		s.Write(s.addr, mem)
		for i := range 150 {
			n := rng.IntN(size/block/4) * block
			off, to := rng.IntN(size/block+8)*block, rng.IntN((size-n)/block+1)*block
			if i%4 == 3 && off+n <= len(model) {
				got, err := s.b.Write(f, int64(off), uint64(n), uint64(to))
				if err != nil || got != int64(n) {
					t.Fatalf("write %d at %d from %d: %d, %v", n, off, to, got, err)
				}
				copy(model[off:], mem[to:to+n])
				continue
			}
			want := 0
			if off < len(model) {
				want = min(n, len(model)-off)
			}
			got, err := s.b.Read(f, int64(off), uint64(n), uint64(to))
			if err != nil || got != int64(want) {
				t.Fatalf("read %d at %d to %d: %d, %v, want %d", n, off, to, got, err, want)
			}
			if want > 0 {
				copy(mem[to:], model[off:off+want])
				if tail := want % block; tail != 0 { // a device reads whole blocks
					rest := s.Read(s.addr+uint64(to+want), block-tail)
					copy(mem[to+want:], rest)
				}
			}
		}
		if d := firstDiff(s.Read(s.addr, size), mem); d != "" {
			t.Errorf("shadow of %d: GPU memory: %s", shadow, d)
		}
		file, err := os.ReadFile(filepath.Join(s.dir, "f"))
		s.check(err)
		if d := firstDiff(file, model); d != "" {
			t.Errorf("shadow of %d: file: %s", shadow, d)
		}
		// What host memory has seen are commands, lists and completions.
		st, h := s.drive.Stats(), s.Fabric().HostTraffic()
		if h.Read != st.Fetched+st.Listed || h.Written != st.Posted || st.Out == 0 || st.In == 0 {
			t.Errorf("host memory has seen %+v, the drive's queues are %+v", h, st)
		}
		s.close()
	}
}

// A driver without hooks moves nothing: that must be an error and never data,
// and never a damaged file.
func TestSparseAnswerIsNotTakenForData(t *testing.T) {
	s := newSession(t, false, nvfs.Config{}, 1<<20, 0)
	canary := bytes.Repeat([]byte{0xcc}, 1<<20)
	s.Write(s.addr, canary)
	data := pattern(7, 1<<20)
	path := s.file("a", 1<<20, map[int64][]byte{0: data})
	f := s.open(path)
	if n, err := s.b.Read(f, 0, page, 0); n != 0 || !errors.Is(err, client.ErrNotDirect) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := s.b.Write(f, 0, page, 0); n != 0 || !errors.Is(err, client.ErrNotDirect) {
		t.Errorf("write: %d, %v", n, err)
	}
	if d := firstDiff(s.Read(s.addr, 1<<20), canary); d != "" {
		t.Errorf("GPU memory: %s", d)
	}
	got, err := os.ReadFile(path)
	s.check(err)
	if d := firstDiff(got, data); d != "" {
		t.Errorf("file: %s", d)
	}
	// A true hole needs no driver.
	h := s.open(s.file("h", 1<<20, nil))
	if n, err := s.b.Read(h, 0, 1<<20, 0); n != 1<<20 || err != nil {
		t.Errorf("hole: %d, %v", n, err)
	}
	if d := firstDiff(s.Read(s.addr, 1<<20), make([]byte, 1<<20)); d != "" {
		t.Errorf("hole: %s", d)
	}
	s.close()
}

// A free tells the program; whatever it does then fails and moves nothing.
func TestFreedMemory(t *testing.T) {
	s := newSession(t, true, nvfs.Config{Callback: true}, 2<<20, page)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	_, err := s.b.Read(f, 0, 1<<20, 0)
	s.check(err)
	s.RM.Revoke()
	for range 2 {
		if n, err := s.b.Read(f, 0, page, 0); n != 0 || !errors.Is(err, client.ErrRevoked) || !errors.Is(err, syscall.EBUSY) {
			t.Errorf("read: %d, %v", n, err)
		}
	}
	if n, err := s.b.Write(f, 0, page, 0); n != 0 || !errors.Is(err, client.ErrRevoked) {
		t.Errorf("write: %d, %v", n, err)
	}
	s.check(s.b.Close())
	if _, err := s.b.Read(f, 0, page, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read of a closed buffer: %v", err)
	}
	if err := s.b.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	s.close()
}

// Persistent pins outlive the owner's free.
func TestPersistentPinOutlivesFree(t *testing.T) {
	s := newSession(t, true, nvfs.Config{}, 2<<20, page)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	s.check(s.GPU.Free(s.bufs[0]))
	s.bufs = nil
	if n, err := s.b.Read(f, 0, 1<<20, 0); n != 1<<20 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	s.close()
}

// Many users of one buffer and of several do not get into each other's way: the
// module would give up a buffer that two use at once.
func TestTransfersAreLinedUp(t *testing.T) {
	s := newSession(t, true, nvfs.Config{}, 1<<20, page)
	data := pattern(7, 1<<20)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: data}))
	var wg sync.WaitGroup
	for i := range uint64(16) {
		wg.Go(func() {
			for range 20 {
				if n, err := s.b.Read(f, int64(i*page), page, i*page); n != page || err != nil {
					t.Errorf("%d, %v", n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if d := firstDiff(s.Read(s.addr, 1<<20), data); d != "" {
		t.Error(d)
	}
	s.close()
}

func TestRefusals(t *testing.T) {
	s := newSession(t, true, nvfs.Config{}, 1<<20, 0)
	path := s.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)})
	f := s.open(path)
	for name, tc := range map[string]struct {
		off       int64
		n, devOff uint64
	}{
		"negative":         {-block, block, 0},
		"unaligned offset": {1, block, 0},
		"unaligned size":   {0, 100, 0},
		"unaligned buffer": {0, block, 512},
		"past the buffer":  {0, block, 1 << 20},
		"wraps":            {0, 1<<64 - block, block},
	} {
		if n, err := s.b.Read(f, tc.off, tc.n, tc.devOff); n != 0 || err == nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	plain, err := os.Open(path)
	s.check(err)
	if _, err := client.NewFile(path, int(plain.Fd()), -1); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a file without O_DIRECT: %v", err)
	}
	s.check(plain.Close())
	for _, cfg := range []client.Config{{Addr: s.addr, Size: 0}, {Addr: s.addr + 1, Size: page}, {Addr: 1 << 40, Size: page}, {Addr: s.addr, Size: page, Shadow: 100000}} {
		if _, err := s.c.Register(cfg); err == nil {
			t.Errorf("%+v was registered", cfg)
		}
	}
	s.fail = 1
	if _, err := s.c.Register(client.Config{Addr: s.addr, Size: page}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("a pin that fails: %v", err)
	}
	s.close()
}

// A transfer allocates nothing in the client, and little in all.
func BenchmarkRead(b *testing.B) {
	s := newSession(b, true, nvfs.Config{}, 1<<20, 0)
	f := s.open(s.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}))
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.b.Read(f, 0, 1<<20, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	s.close()
}

// BenchmarkPread is what BenchmarkRead is measured against.
func BenchmarkPread(b *testing.B) {
	w := newFixture(b, false, nvfs.Config{})
	f, err := os.OpenFile(w.file("a", 1<<20, map[int64][]byte{0: pattern(7, 1<<20)}), os.O_RDWR|unix.O_DIRECT, 0)
	w.check(err)
	mem := w.memory(1 << 20)
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := f.ReadAt(mem, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	w.check(f.Close())
	w.close()
}
