package ladder

import (
	"bytes"
	"os"
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
		})
	}
}

// A drive that lies about whole transfers, under nvidia-fs: nothing wrong is
// acknowledged in either direction.
func TestDriveThatLies(t *testing.T) {
	const file, buffer = 2 << 20, 256 << 10
	m, err := machine.FromSoft(soft.Config{Memory: 16 << 20, Liar: &nvme.Liar{
		OneIn: 6, Seed: 5, Lies: []nvme.Lie{nvme.Drop, nvme.Misdirect, nvme.Delay, nvme.Transform},
	}}, "test")
	s := &stacked{T: t, file: directFile(t, noisy(file, 3))}
	s.check(err)
	t.Cleanup(func() { s.check(m.Close()) })
	s.gpu, err = m.GPU.Open(0)
	s.check(err)
	defer s.gpu.Close()
	a, err := s.gpu.Alloc(gpu.KindDevice, buffer, 0)
	s.check(err)
	l := Open(s.gpu, dev.Of(m), nil, Settings{})
	mem := gpu.Span{Base: a, Len: buffer}
	l.Register(mem, gpu.KindDevice)
	defer func() {
		l.Deregister(mem)
		s.check(l.Close())
		s.check(s.gpu.Free(a))
	}()
	l.prover.now = func() time.Time { return time.Now().Add(time.Hour) }
	l.prover.wait = func(time.Duration) {}
	l.prover.pool.New = func() any { return newSamples([32]byte{9}) }
	s.plan = l.Plan(FileSource(s.file))
	direct, passed := 0, 0
	for i := range *liarTransfers / 2 {
		dir := route.Dir(i % 2)
		n := uint64(4096) << (i / 2 % 6)
		s.mem = mem.Slice(uint64(i%2)<<17, n) // at a GPU page: one command of the drive
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
			direct++
		} else {
			passed++
			trust(l.prover, s.file)
		}
	}
	if direct == 0 || passed == 0 {
		t.Errorf("%d transfers by nvfs, %d not: the test shows nothing", direct, passed)
	}
}

func (s *stacked) move(dir route.Dir, off int64) route.Receipt {
	s.Helper()
	res := make([]route.Receipt, 1)
	s.check(s.plan.Run(s.Context(), []Op{{Dir: dir, Src: FileSource(s.file), Off: off, Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}}}, res))
	return res[0]
}

// trust forgets what was learned about the stack of a file.
func trust(v *prover, f *storage.File) {
	p := v.file(f)
	for id := range p.known {
		for dir := range p.known[id] {
			p.known[id][dir].lie.Store(nil)
			p.known[id][dir].strikes.Store(0)
		}
	}
}
