package nvfs_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// An end is one end of a connected queue pair.
type end struct {
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
}

func newEnd(t *testing.T, p rdma.Provider) *end {
	t.Helper()
	e := new(end)
	var err error
	ok := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e.dev, err = p.Open("")
	ok()
	e.pd, err = e.dev.AllocPD()
	ok()
	e.cq, err = e.dev.CreateCQ(16)
	ok()
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.cq, RecvCQ: e.cq})
	ok()
	t.Cleanup(func() {
		if err := errors.Join(e.qp.Close(), e.cq.Close(), e.pd.Close(), e.dev.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// A keyed storage module has a server that moves data by the keys of the process, as remote
// file systems have.
type keyed struct {
	ops    *nvfs.Ops
	server *end
	mr     rdma.MR
	mem    []byte
	want   uint32 // the queue pair of the process
}

func (k *keyed) Name() string                 { return "keyed" }
func (k *keyed) Version() string              { return "1.0" }
func (k *keyed) Serves(int) bool              { return true }
func (k *keyed) Register(ops *nvfs.Ops) error { k.ops = ops; return nil }
func (k *keyed) Unregister()                  {}

func (k *keyed) Submit(r *nvfs.Request) error {
	info, n := k.ops.GPUSGListRDMAInfo(r.Pages)
	if n < 0 || info.QPNum != k.want {
		return syscall.EIO
	}
	op, mem := rdma.OpWrite, k.mem[:info.Len]
	if r.Write {
		op = rdma.OpRead
	} else if _, err := unix.Pread(r.FD, mem, r.Off); err != nil {
		return err
	}
	err := rdma.Post(k.server.qp, rdma.SendWR{Op: op, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(k.mr, 0, uint32(info.Len))}, RemoteAddr: info.Addr, RKey: info.RKey})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wcs [1]rdma.WC
	if _, err := rdma.Await(ctx, k.server.cq, wcs[:]); err != nil || wcs[0].Err() != nil {
		return syscall.EIO
	}
	if r.Write {
		_, err = unix.Pwrite(r.FD, mem, r.Off)
	}
	return err
}

// A program registers GPU memory with an adapter and passes the key to nvidia-fs; storage
// gets it for the pages of a request, and its server moves the data by it. Without a key
// requests fail and move nothing.
func TestKeys(t *testing.T) {
	const size = 256 << 10
	// Not on the heap: the race detector does not see that a socket puts accesses in order.
	m, err := soft.New(soft.Config{Without: []string{"nvidia-fs"}, Memory: 16 << 20})
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(err)
	t.Cleanup(func() { ok(m.Close()) })
	far, err := tcp.New(tcp.Config{})
	ok(err)
	near := newEnd(t, m.RDMA())
	k := &keyed{server: newEnd(t, far), want: near.qp.Num()}
	k.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	ok(err)
	k.mr, err = k.server.pd.Register(rdma.Host(k.mem), rdma.LocalWrite)
	ok(err)
	x, y := net.Pipe()
	joined := make(chan error, 1)
	go func() {
		_, err := rdma.Establish(t.Context(), y, k.server.dev, k.server.qp, rdma.Options{})
		joined <- err
	}()
	_, err = rdma.Establish(t.Context(), x, near.dev, near.qp, rdma.Options{Access: rdma.RemoteWrite | rdma.RemoteRead})
	ok(errors.Join(err, <-joined, x.Close(), y.Close()))

	mod, err := nvfs.New(m.Kernel(), nvfs.Config{RM: m.P2P(), Storage: []nvfs.Storage{k}})
	ok(err)
	g, err := m.GPU.Open(0)
	ok(err)
	a, err := g.Alloc(gpu.KindDevice, size, 0)
	ok(err)
	mr, err := near.pd.Register(rdma.Address(a, size), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	ok(err)
	c, err := client.Open(dev.Of(m))
	ok(err)
	b, err := c.Register(client.Config{Addr: uint64(a), Size: size, Shadow: 64 << 10, Zero: func(addr, n uint64) error { return g.Fill(gpu.Addr(addr), 0, 1, n) }})
	ok(err)
	path := filepath.Join(t.TempDir(), "f")
	data := pattern(3, size)
	ok(os.WriteFile(path, data, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	ok(err)
	nf, err := client.NewFile(path, int(f.Fd()), -1)
	ok(err)

	ok(g.Fill(a, 0xee, 1, size))
	if n, err := b.Read(nf, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("a read without a key: %d, %v", n, err)
	}
	gids, err := near.dev.GIDs(1)
	ok(err)
	key := client.Key{GID: gids[0].GID, QPNum: near.qp.Num(), RKey: mr.RKey(), LID: 7, DCKey: 9}
	ok(b.SetKey(key))
	if got, addr, n, err := b.Key(4096); err != nil || got != key || addr != uint64(a)+4096 || n != size-4096 {
		t.Errorf("the key is %+v at %#x, %d bytes, %v", got, addr, n, err)
	}
	// Four windows of 64 KiB: each has the address of its own part.
	if n, err := b.Read(nf, 0, size, 0); n != size || err != nil {
		t.Fatal(n, err)
	}
	got := make([]byte, size)
	ok(g.CopyOut(got, a))
	if !bytes.Equal(got, data) {
		t.Error("the GPU has other bytes")
	}
	ok(g.Fill(a, 0x33, 1, size))
	if n, err := b.Write(nf, 8192, 4096, 65536+4096); n != 4096 || err != nil {
		t.Fatal(n, err)
	}
	copy(data[8192:], bytes.Repeat([]byte{0x33}, 4096))
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, data) {
		t.Errorf("the file has other bytes, %v", err)
	}
	ok(b.ClearKey())
	if got, _, _, err := b.Key(0); err != nil || got != (client.Key{}) {
		t.Errorf("after it was cleared the key is %+v, %v", got, err)
	}
	if n, err := b.Write(nf, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("a write without a key: %d, %v", n, err)
	}
	ok(errors.Join(b.Close(), f.Close()))
	if err := b.SetKey(key); err == nil {
		t.Error("a key for a buffer that is closed")
	}
	ok(errors.Join(c.Close(), mr.Close(), k.mr.Close(), g.Free(a), g.Close(), unix.Munmap(k.mem)))
	mod.Close()
}
