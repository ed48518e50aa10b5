package ladder

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/remote"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
)

// A hooked source is a DirectSource as cufile makes it of one.
type hooked struct {
	deviceSource
	closing []func()
}

type deviceSource interface {
	Name() string
	Size() (int64, error)
	ReadAt(p []byte, off int64) (int, error)
	WriteAt(p []byte, off int64) (int, error)
	Route() route.ID
	Path() string
	Alignment() (block, memory uint64)
	Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error)
	Unmap(buf gpu.Span) error
	Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error)
}

func (h *hooked) File() *storage.File { return nil }
func (h *hooked) OnClose(f func())    { h.closing = append(h.closing, f) }

// sourceLabs has the routes of sources: a drive of the software machine, and a file of a
// server that its network adapters reach.
func sourceLabs(t *testing.T, test func(t *testing.T, l *liarLab)) {
	t.Run("nvme", func(t *testing.T) {
		device, m := softDevice(t)
		d := &hooked{deviceSource: driveSource(t, m, nil, noisy(liarFile, 3))}
		r, mem := deviceRoute(t, device, route.NVMe)
		test(t, newLiarLabOf(t, device, r, mem, route.NVMe, [2]Source{d, d}))
	})
	t.Run("rdma", func(t *testing.T) {
		device, m := softDevice(t)
		src := remoteSources(t, m, noisy(liarFile, 3))
		r, mem := deviceRoute(t, device, route.RDMA)
		test(t, newLiarLabOf(t, device, r, mem, route.RDMA, src))
	})
}

// deviceRoute is the route of a source and a registered buffer.
func deviceRoute(t *testing.T, device gpu.Device, id route.ID) (*sourceRoute, gpu.Span) {
	t.Helper()
	r := newSourceRoute(id, device)
	a, err := device.Alloc(gpu.KindDevice, labSize, 0)
	check(t, err)
	mem := gpu.Span{Base: a, Len: labSize}
	r.Register(mem, gpu.KindDevice)
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), device.Free(a)); err != nil {
			t.Error(err)
		}
	})
	return r, mem
}

// driveSource is a drive of a software machine with the given bytes.
func driveSource(t *testing.T, m *machine.Machine, liar *softnvme.Liar, data []byte) *nvme.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drive")
	check(t, os.WriteFile(path, data, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	defer f.Close()
	s, _ := soft.Of(m.GPU)
	drive, err := s.AddDrive(soft.Drive{File: f})
	check(t, err)
	c, err := nvme.Open(s.Transport(len(s.Drives())-1), nvme.Config{})
	check(t, err)
	src, err := nvme.NewSource(c.Namespaces()[0], nvme.SourceOptions{Name: "drive"})
	check(t, err)
	drive.Lie(liar)
	t.Cleanup(func() {
		drive.Lie(nil)
		if err := errors.Join(src.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return src
}

// remoteSources are a file of a server and an upload to it, both with the given bytes,
// over the network adapters of a software machine.
func remoteSources(t *testing.T, m *machine.Machine, data []byte) (src [2]Source) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "d")
	check(t, os.Mkdir(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "data"), data, 0o600))
	exports, err := remote.NewExports([]string{dir})
	check(t, err)
	s, _ := soft.Of(m.GPU)
	provider := s.RDMA()
	near, err := provider.Open("")
	check(t, err)
	far, err := provider.Open("")
	check(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- remote.NewServer(remote.ServerConfig{Device: far, Exports: exports, Writable: true}).Serve(ctx, listener)
	}()
	c, err := remote.Dial(ctx, remote.ClientConfig{Addr: listener.Addr().String(), Device: near})
	check(t, err)
	from, err := c.Open(ctx, "d/data")
	check(t, err)
	to, err := c.Create(ctx, "d/new", int64(len(data)))
	check(t, err)
	ends := [2]*remote.Source{remote.NewSource(ctx, from), remote.NewSource(ctx, to)}
	if _, err := ends[1].WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(ends[0].Close(ctx), ends[1].Close(ctx), c.Close())
		cancel()
		if err := errors.Join(err, <-served, near.Close(), far.Close()); err != nil {
			t.Error(err)
		}
		exports.Close()
	})
	return [2]Source{route.Read: &hooked{deviceSource: ends[0]}, route.Write: &hooked{deviceSource: ends[1]}}
}

// A drive whose transfers with GPU memory are lies: nothing wrong is acknowledged, and
// with the route required it is an error that leaves the drive as it was.
func TestRawDriveThatLies(t *testing.T) {
	const size, buffer = 2 << 20, 256 << 10
	device, m := softDevice(t)
	liar := &softnvme.Liar{OneIn: 3, Seed: 5, Peer: true}
	data := noisy(size, 3)
	src := &hooked{deviceSource: driveSource(t, m, liar, data)}
	l := Open(device, dev.Of(m), nil, Settings{})
	l.prover.wait = func(time.Duration) {}
	places := newSamples([32]byte{9})
	l.prover.pool.New = func() any { return places }
	a, err := device.Alloc(gpu.KindDevice, buffer, 0)
	check(t, err)
	mem := gpu.Span{Base: a, Len: buffer}
	l.Register(mem, gpu.KindDevice)
	plan := l.Plan(src)
	only, err := plan.Only(route.NVMe)
	check(t, err)
	direct, passed, refused := 0, 0, 0
	for i := range *liarTransfers {
		dir, p := route.Dir(i%2), plan
		if i%3 == 0 {
			p = only
		}
		n := uint64(4096) << (i / 2 % 6)
		off := int64(i*104729%(size/4096-32)) * 4096
		put := noisy(int(n), byte(i))
		check(t, device.CopyIn(a, put))
		res := make([]route.Receipt, 1)
		err := p.Run(t.Context(), []Op{{Dir: dir, Src: src, Off: off, Mem: mem.Slice(0, n), Kind: gpu.KindDevice, Buf: always{}}}, res)
		switch {
		case err != nil && (p != only || !isRequire(err)):
			t.Fatalf("transfer %d: %v, %v", i, &res[0], err)
		case err != nil:
			refused++
		case res[0].Route == route.NVMe:
			direct++
		default:
			passed++
		}
		if err == nil && dir == route.Write {
			copy(data[off:], put)
		}
		have, got := make([]byte, n), make([]byte, n)
		if _, err := src.ReadAt(have, off); err != nil || !bytes.Equal(have, data[off:off+int64(n)]) {
			t.Fatalf("transfer %d: the drive has other bytes: %v, %v", i, &res[0], err)
		}
		check(t, device.CopyOut(got, a))
		if err == nil && !bytes.Equal(got, have) {
			t.Fatalf("transfer %d: acknowledged wrong bytes: %v", i, &res[0])
		}
		trustSource(l.prover, src)
	}
	t.Logf("%d transfers by nvme, %d by another route, %d refused, %d lies", direct, passed, refused, liar.Told())
	if direct == 0 || passed == 0 || refused == 0 || liar.Told() == 0 {
		t.Errorf("%d transfers by nvme, %d not, %d refused, %d lies: the test shows nothing", direct, passed, refused, liar.Told())
	}
	l.Deregister(mem)
	check(t, errors.Join(l.Close(), device.Free(a)))
}

func trustSource(v *prover, s DirectSource) {
	p := v.source(s)
	for id := range p.known {
		for dir := range p.known[id] {
			p.known[id][dir].lie.Store(nil)
			p.known[id][dir].strikes.Store(0)
			p.known[id][dir].proofs.Store(0)
		}
	}
}

// An edited source has other bytes after a transfer than before, and says that it has
// changed.
type edited struct {
	*directMemory
	changed bool
}

func (c *edited) Changed() bool { return c.changed }

func (c *edited) Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	n, err := c.directMemory.Move(ctx, dir, mem, off)
	for i := range c.memorySource {
		c.memorySource[i]++
	}
	return n, err
}

// A source that others change is no liar: the next route reads it, this once. One that
// does not say so is.
func TestSourceThatChanges(t *testing.T) {
	for _, says := range []bool{true, false} {
		w, s := sourceFixture(t, route.RDMA)
		src := &edited{s, says}
		w.src = src
		w.ladder.prover.wait = func(time.Duration) {}
		r, err := w.move(w.ladder.Plan(src), route.Read, 0, w.mem.Slice(0, 8192))
		d := r.Declined[route.RDMA]
		if err != nil || r.Route != route.Ring || d == nil || (d.Test == "file") != says {
			t.Errorf("%v, %v: %v", &r, err, d)
		}
		if lie := w.ladder.prover.source(src).known[route.RDMA][route.Read].lie.Load(); (lie == nil) != says {
			t.Errorf("a lie: %v", lie)
		}
	}
}
