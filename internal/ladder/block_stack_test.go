package ladder

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// softStacks are the stacks of the software machine. layer is the one that is declined,
// "" if nvfs is right.
var softStacks = []struct{ stack, layer string }{
	{"", ""},
	{"raid0", ""},
	{"raid1", ""},
	{"linear", ""},
	{"linear+raid1", ""},
	{"crypt", "dm-90 (device mapper crypt)"},
	{"linear+crypt", "dm-91 (device mapper crypt)"},
	{"crypt+raid1", "dm-90 (device mapper crypt)"},
	{"raid5", "md90 (RAID raid5)"},
	{"linear+raid5", "md91 (RAID raid5)"},
	{"btrfs", "btrfs (file system)"},
	{"compress", "btrfs (file system)"},
	{"virtio", "vd90 (drive virtio_blk)"},
}

// A stacked is a software machine with layers below its files, and a file.
type stacked struct {
	*testing.T
	plan   *Plan
	ladder *Ladder
	file   *storage.File
	path   string
	mem    gpu.Span
	gpu    gpu.Device
}

func newStacked(t *testing.T, stack string, data []byte) *stacked {
	t.Helper()
	s := &stacked{T: t, path: filepath.Join(t.TempDir(), "f")}
	m, err := machine.FromSoft(soft.Config{Memory: 16 << 20, Stack: stack}, "test")
	s.check(err)
	t.Cleanup(func() { s.check(m.Close()) })
	s.gpu, err = m.GPU.Open(0)
	s.check(err)
	s.check(os.WriteFile(s.path, data, 0o600))
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	s.check(err)
	defer f.Close()
	s.file, err = storage.Adopt(int(f.Fd()))
	s.check(err)
	if s.file.Direct() < 0 {
		t.Skipf("needs a file system with O_DIRECT: %s", s.file.Facts.Direct.Source)
	}
	a, err := s.gpu.Alloc(gpu.KindDevice, uint64(len(data)), 0)
	s.check(err)
	s.mem = gpu.Span{Base: a, Len: uint64(len(data))}
	l := Open(s.gpu, dev.Of(m), nil, Settings{})
	l.Register(s.mem, gpu.KindDevice)
	s.ladder, s.plan = l, l.Plan(FileSource(s.file))
	t.Cleanup(func() {
		l.Deregister(s.mem)
		s.check(errors.Join(l.Close(), s.gpu.Free(a), s.file.Close(), s.gpu.Close()))
	})
	return s
}

func (s *stacked) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stacked) run(p *Plan, dir route.Dir) (route.Receipt, error) {
	ops := []Op{{Dir: dir, Src: FileSource(s.file), Mem: s.mem, Kind: gpu.KindDevice, Buf: always{}}}
	res := make([]route.Receipt, 1)
	err := p.Run(context.Background(), ops, res)
	return res[0], err
}

// TestStacks: on every stack the bytes are right in both directions; where a layer does
// not pass them unchanged nvfs is declined with the layer's name, and if it is required
// nothing is touched.
func TestStacks(t *testing.T) {
	const size = 512 << 10
	data, other := noisy(size, 1), noisy(size, 2)
	for _, c := range softStacks {
		t.Run(c.stack, func(t *testing.T) {
			s := newStacked(t, c.stack, data)
			r, err := s.run(s.plan, route.Read)
			got := make([]byte, size)
			s.check(errors.Join(err, s.gpu.CopyOut(got, s.mem.Base)))
			if !bytes.Equal(got, data) || (r.By[route.NVFS] > 0) != (c.layer == "") {
				t.Errorf("read: right %v, %v", bytes.Equal(got, data), &r)
			}
			if _, err := s.plan.Only(route.NVFS); c.layer != "" {
				var e *route.RequireError
				if !errors.As(err, &e) || !strings.HasPrefix(e.Declined[0].Evidence, c.layer) || e.Declined[0].Test != "block stack" {
					t.Errorf("with nvfs required: %v, want one that names %s", err, c.layer)
				}
			} else if err != nil {
				t.Errorf("nvfs is declined: %v", err)
			}
			s.check(s.gpu.CopyIn(s.mem.Base, other))
			r, err = s.run(s.plan, route.Write)
			s.check(err)
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, other) {
				t.Errorf("write: the file has other bytes, %v, %v", err, &r)
			}
		})
	}
}

// TestHiddenStacks: layers that /sys does not show, as below a hypervisor. Transfers by
// nvfs look like successes, or fail in ways that say nothing; the bytes are right in
// both directions all the same.
func TestHiddenStacks(t *testing.T) {
	const size = 512 << 10
	data, other := noisy(size, 1), noisy(size, 2)
	for stack, reads := range map[string]bool{ // whether nvfs reads
		"raid1": true, "linear": true, "raid5": true, "crypt": false, "compress": false, "virtio": false, "btrfs": false,
	} {
		t.Run(stack, func(t *testing.T) {
			s := newStacked(t, "hidden:"+stack, data)
			r, err := s.run(s.plan, route.Read)
			got := make([]byte, size)
			s.check(errors.Join(err, s.gpu.CopyOut(got, s.mem.Base)))
			if !bytes.Equal(got, data) || (r.By[route.NVFS] > 0) != reads {
				t.Errorf("read: right %v, %v", bytes.Equal(got, data), &r)
			}
			s.check(s.gpu.CopyIn(s.mem.Base, other))
			r, err = s.run(s.plan, route.Write)
			s.check(err)
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, other) {
				t.Errorf("write: the file has other bytes, %v, %v", err, &r)
			}
		})
	}
}
