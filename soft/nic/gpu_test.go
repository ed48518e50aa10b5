package nic_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/pcie"
)

const all = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

// A side is one end of a connection.
type side struct {
	t   *testing.T
	dev rdma.Device
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
}

func newSide(t *testing.T, d rdma.Device) *side {
	t.Helper()
	s := &side{t: t, dev: d}
	var err error
	s.pd, err = d.AllocPD()
	s.ok(err)
	s.cq, err = d.CreateCQ(256)
	s.ok(err)
	s.qp, err = s.pd.CreateQP(rdma.QPConfig{SendCQ: s.cq, RecvCQ: s.cq})
	s.ok(err)
	return s
}

func (s *side) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) close() {
	s.t.Helper()
	for _, c := range []interface{ Close() error }{s.qp, s.cq, s.pd, s.dev} {
		s.ok(c.Close())
	}
}

func (s *side) register(m rdma.Memory, a rdma.Access) rdma.MR {
	s.t.Helper()
	mr, err := s.pd.Register(m, a)
	s.ok(err)
	return mr
}

func connect(t *testing.T, a, b *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	done := make(chan error, 1)
	go func() {
		_, err := rdma.Establish(ctx, y, b.dev, b.qp, rdma.Options{})
		done <- err
	}()
	_, err := rdma.Establish(ctx, x, a.dev, a.qp, rdma.Options{})
	a.ok(err)
	a.ok(<-done)
}

// do runs one request and returns its status.
func (s *side) do(op rdma.Opcode, local rdma.MR, remote rdma.Key, n uint32) rdma.Status {
	s.t.Helper()
	s.ok(rdma.Post(s.qp, rdma.SendWR{Op: op, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(local, 0, n)}, RemoteAddr: remote.Addr, RKey: remote.RKey}))
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	var wcs [1]rdma.WC
	_, err := rdma.Await(ctx, s.cq, wcs[:])
	s.ok(err)
	return wcs[0].Status
}

// A rig is a machine with a target (beside GPU 0) and an initiator (at a root port).
type rig struct {
	*soft.Machine
	gpu    gpu.Device
	target *side
	from   *side
	buf    []byte // of the initiator
	mr     rdma.MR
}

func newRig(t *testing.T, cfg soft.Config) *rig {
	t.Helper()
	cfg.NICs = []soft.NIC{{GPU: 0}, {GPU: -1}}
	r := &rig{Machine: machine(t, cfg)}
	r.target, r.from = newSide(t, open(t, r.Machine, "soft0")), newSide(t, open(t, r.Machine, "soft1"))
	var err error
	r.gpu, err = r.GPU.Open(0)
	r.from.ok(err)
	r.buf = mapped(t, 1<<20)
	r.mr = r.from.register(rdma.Host(r.buf), all)
	connect(t, r.from, r.target)
	t.Cleanup(func() {
		r.from.ok(r.mr.Close())
		r.from.close()
		r.target.close()
		r.from.ok(r.gpu.Close())
	})
	return r
}

// mapped is memory that is not on the heap: the race detector cannot know that completions
// order the accesses of peers.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (r *rig) alloc(n uint64) gpu.Addr {
	r.from.t.Helper()
	a, err := r.gpu.Alloc(gpu.KindDevice, n, 0)
	r.from.ok(err)
	return a
}

func (r *rig) contents(a gpu.Addr, n int) []byte {
	r.from.t.Helper()
	b := make([]byte, n)
	r.from.ok(r.gpu.CopyOut(b, a))
	return b
}

// hostTraffic waits until so many bytes of host memory were read: the sender may count
// them after the peer has confirmed them.
func (r *rig) hostTraffic(read uint64) pcie.HostTraffic {
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		if h := r.Fabric().HostTraffic(); h.Read == read || time.Now().After(end) {
			if h.Read != read {
				r.from.t.Errorf("%d bytes of host memory were read, want %d", h.Read, read)
			}
			return h
		}
	}
}

func (r *rig) free(a gpu.Addr) {
	r.from.t.Helper()
	r.from.ok(r.gpu.Free(a))
}

// dmabuf exports GPU memory and registers it.
func (r *rig) dmabuf(a gpu.Addr, size, off, n uint64, access rdma.Access) (rdma.MR, error) {
	r.from.t.Helper()
	f, err := r.gpu.Export(a, size, gpu.ExportDMABuf)
	r.from.ok(err)
	defer f.Close() // it may be closed after the registration
	return r.target.pd.Register(rdma.DMABuf(f, off, n, uint64(a)+off), access)
}

func pattern(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7+i>>8) + byte(seed)
	}
}

// A WRITE lands in GPU pages by DMA: no byte is written to host memory, at any alignment,
// with scattered pages, through both ways to register and both kinds of pins.
func TestWriteToGPU(t *testing.T) {
	for _, cfg := range []soft.Config{
		{}, {Scatter: true}, {IOMMU: pcie.Translating, Scatter: true}, {Callback: true, Scatter: true}, {IOMMU: pcie.Translating, Callback: true},
	} {
		r := newRig(t, cfg)
		a := r.alloc(1 << 20)
		for i, c := range []struct{ off, n uint64 }{{0, 1 << 20}, {12345, 300_001}, {65536, 65536}, {4095, 2}} {
			r.from.ok(r.gpu.Fill(a, 0xee, 1, 1<<20))
			viaAddress := r.target.register(rdma.Address(a+gpu.Addr(c.off), c.n), all)
			viaDMABuf, err := r.dmabuf(a, 1<<20, c.off, c.n, all)
			r.from.ok(err)
			for j, mr := range []rdma.MR{viaAddress, viaDMABuf} {
				pattern(r.buf, i*2+j)
				before := r.Fabric().HostTraffic()
				if s := r.from.do(rdma.OpWrite, r.mr, rdma.Remote(mr), uint32(c.n)); s != rdma.Success {
					t.Fatalf("%+v: write of %+v: %v", cfg, c, s)
				}
				after := r.hostTraffic(before.Read + c.n)
				if after.Written != before.Written {
					t.Errorf("%+v: host memory: %+v, then %+v", cfg, before, after)
				}
				got := r.contents(a, 1<<20)
				if !bytes.Equal(got[c.off:c.off+c.n], r.buf[:c.n]) {
					t.Errorf("%+v: write of %+v did not arrive", cfg, c)
				}
				rest := append(append([]byte(nil), got[:c.off]...), got[c.off+c.n:]...)
				if !bytes.Equal(rest, bytes.Repeat([]byte{0xee}, len(rest))) {
					t.Errorf("%+v: write of %+v changed other bytes", cfg, c)
				}
				clear(r.buf)
				if s := r.from.do(rdma.OpRead, r.mr, rdma.Remote(mr), uint32(c.n)); s != rdma.Success || !bytes.Equal(r.buf[:c.n], got[c.off:c.off+c.n]) {
					t.Errorf("%+v: read of %+v: %v", cfg, c, s)
				}
			}
			r.from.ok(errors.Join(viaAddress.Close(), viaDMABuf.Close()))
		}
		r.free(a)
	}
}

// With free callbacks, freed memory invalidates its regions: later access is a remote
// access error and changes nothing, not even memory that was allocated in its place.
// Deregistration works after that.
func TestFreeInvalidates(t *testing.T) {
	r := newRig(t, soft.Config{Callback: true, Memory: 4 << 20})
	a := r.alloc(2 << 20)
	mr := r.target.register(rdma.Address(a, 2<<20), all)
	if s := r.from.do(rdma.OpWrite, r.mr, rdma.Remote(mr), 1<<20); s != rdma.Success {
		t.Fatal(s)
	}
	r.free(a)
	b := r.alloc(2 << 20)
	r.from.ok(r.gpu.Fill(b, 0x11, 1, 2<<20))
	if s := r.from.do(rdma.OpWrite, r.mr, rdma.Remote(mr), 1<<20); s != rdma.RemAccessErr {
		t.Errorf("write to freed memory: %v", s)
	}
	if !bytes.Equal(r.contents(b, 2<<20), bytes.Repeat([]byte{0x11}, 2<<20)) {
		t.Error("memory that was allocated in its place has changed")
	}
	if got := sysfs(t, r.Machine, "sys/kernel/mm/memory_peers/nv_mem/num_free_callbacks"); got != "1" {
		t.Errorf("num_free_callbacks is %s", got)
	}
	r.from.ok(mr.Close())
	r.free(b)
}

// Persistent pins and dma-bufs keep the memory for the adapter until deregistration.
func TestPersistentOutlivesFree(t *testing.T) {
	r := newRig(t, soft.Config{})
	a := r.alloc(2 << 20)
	viaDMABuf, err := r.dmabuf(a, 2<<20, 0, 2<<20, all)
	r.from.ok(err)
	viaAddress := r.target.register(rdma.Address(a, 2<<20), all)
	r.free(a)
	for _, mr := range []rdma.MR{viaAddress, viaDMABuf} {
		pattern(r.buf, 5)
		if s := r.from.do(rdma.OpWrite, r.mr, rdma.Remote(mr), 1<<20); s != rdma.Success {
			t.Errorf("write after the free: %v", s)
		}
	}
	r.from.ok(errors.Join(viaAddress.Close(), viaDMABuf.Close()))
}

// What cannot be registered fails with the errno of the real one.
func TestRegistrationFails(t *testing.T) {
	r := newRig(t, soft.Config{Without: []string{"nvidia-peermem"}})
	a := r.alloc(2 << 20)
	if _, err := r.target.pd.Register(rdma.Address(a, 4096), all); !errors.Is(err, syscall.EFAULT) {
		t.Errorf("without nvidia-peermem: %v", err)
	}
	if _, err := r.dmabuf(a, 65536, 4096, 65536, all); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("past the end of the dma-buf: %v", err)
	}
	r.free(a)

	r = newRig(t, soft.Config{Isolated: true})
	a = r.alloc(2 << 20)
	f, err := r.gpu.Export(a, 65536, gpu.ExportDMABuf)
	r.from.ok(err)
	defer f.Close()
	if _, err := r.from.pd.Register(rdma.DMABuf(f, 0, 65536, uint64(a)), all); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("dma-buf of a GPU that cannot be reached: %v", err)
	}
	r.free(a)
}

func TestNoDMABuf(t *testing.T) {
	m := machine(t, soft.Config{NICs: []soft.NIC{{NoDMABuf: true, Name: "old"}}})
	s := newSide(t, open(t, m, "old"))
	defer s.close()
	g, err := m.GPU.Open(0)
	s.ok(err)
	a, err := g.Alloc(gpu.KindDevice, 65536, 0)
	s.ok(err)
	f, err := g.Export(a, 65536, gpu.ExportDMABuf)
	s.ok(err)
	if _, err := s.pd.Register(rdma.DMABuf(f, 0, 65536, uint64(a)), all); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a driver without dma-buf: %v", err)
	}
	s.ok(errors.Join(f.Close(), g.Free(a), g.Close()))
}

// A GPU that the fabric does not let the adapter reach gives remote access errors:
// nvidia_p2p maps without asking.
func TestUnreachableGPU(t *testing.T) {
	m := machine(t, soft.Config{Isolated: true, NICs: []soft.NIC{{GPU: -1}, {GPU: -1}}})
	target, from := newSide(t, open(t, m, "soft0")), newSide(t, open(t, m, "soft1"))
	connect(t, from, target)
	g, err := m.GPU.Open(0)
	from.ok(err)
	a, err := g.Alloc(gpu.KindDevice, 65536, 0)
	from.ok(err)
	mr, local := target.register(rdma.Address(a, 65536), all), from.register(rdma.Host(make([]byte, 4096)), 0)
	if s := from.do(rdma.OpWrite, local, rdma.Remote(mr), 4096); s != rdma.RemAccessErr {
		t.Errorf("write: %v", s)
	}
	from.ok(errors.Join(mr.Close(), local.Close(), g.Free(a), g.Close()))
	from.close()
	target.close()
}

func sysfs(t *testing.T, m *soft.Machine, path string) string {
	t.Helper()
	b, err := fs.ReadFile(m.Kernel().FS(), path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestSysfs(t *testing.T) {
	r := newRig(t, soft.Config{})
	a := r.alloc(1 << 20)
	mr := r.target.register(rdma.Address(a, 1<<20), all)
	if s := r.from.do(rdma.OpWrite, r.mr, rdma.Remote(mr), 1<<20); s != rdma.Success {
		t.Fatal(s)
	}
	for path, want := range map[string]string{
		"class/infiniband/soft0/ports/1/link_layer":              "Ethernet",
		"class/infiniband/soft0/ports/1/state":                   "4: ACTIVE",
		"class/infiniband/soft0/ports/1/gids/0":                  "0000:0000:0000:0000:0000:ffff:7f00:0001",
		"class/infiniband/soft0/ports/1/gid_attrs/types/0":       "RoCE v2",
		"class/infiniband/soft0/ports/1/counters/port_rcv_data":  "262144",
		"class/infiniband/soft1/ports/1/counters/port_xmit_data": "262144",
		"kernel/mm/memory_peers/nv_mem/num_alloc_mrs":            "1",
		"kernel/mm/memory_peers/nv_mem/num_reg_bytes":            "1048576",
	} {
		got := sysfs(t, r.Machine, "sys/"+path)
		// The sender may count after the peer has confirmed.
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); runtime.Gosched() {
			got = sysfs(t, r.Machine, "sys/"+path)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	r.from.ok(mr.Close())
	r.free(a)
}

// Closing the machine ends registrations that were left, as the end of a process does.
func TestMachineClosesWithRegions(t *testing.T) {
	m, err := soft.New(soft.Config{Heap: true, Memory: 4 << 20, Callback: true})
	if err != nil {
		t.Fatal(err)
	}
	s := newSide(t, open(t, m, ""))
	g, err := m.GPU.Open(0)
	s.ok(err)
	a, err := g.Alloc(gpu.KindDevice, 65536, 0)
	s.ok(err)
	mr := s.register(rdma.Address(a, 65536), all)
	s.ok(m.Close())
	s.ok(mr.Close())
	s.close()
}

var (
	revokes = flag.Int("revokes", 200, "number of frees while writes are in flight")
	first   = flag.Uint64("first-seed", 0, "seed of the first")
)

// Freeing memory while writes to it are in flight: when the free returns, no write
// changes the memory any more, and every request completes once, with success or an error
// that a revoke gives.
func TestRevokeDuringWrites(t *testing.T) {
	m := machine(t, soft.Config{Callback: true, Memory: 4 << 20, NICs: []soft.NIC{{GPU: 0}, {GPU: -1}}})
	g, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	target, from := open(t, m, "soft0"), open(t, m, "soft1")
	for i := range uint64(*revokes) {
		revokeDuringWrites(t, g, target, from, *first+i)
	}
	for _, err := range []error{target.Close(), from.Close(), g.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}

func revokeDuringWrites(t *testing.T, g gpu.Device, target, from rdma.Device, seed uint64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	a, b := newSide(t, from), newSide(t, target)
	connect(t, a, b)
	const size = 2 << 20
	at, err := g.Alloc(gpu.KindDevice, size, 0)
	a.ok(err)
	n := uint32(1 + rng.IntN(256<<10))
	mr, local := b.register(rdma.Address(at, uint64(n)), all), a.register(rdma.Host(bytes.Repeat([]byte{0xaa}, int(n))), 0)
	const writes = 16
	for i := range uint64(writes) {
		a.ok(rdma.Post(a.qp, rdma.SendWR{ID: i, Op: rdma.OpWrite, Flags: rdma.Signaled, SGE: []rdma.SGE{rdma.Local(local, 0, n)}, RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wcs [writes]rdma.WC
	got := 0
	await := func(until int) {
		for got < until {
			k, err := rdma.Await(ctx, a.cq, wcs[got:])
			a.ok(err)
			got += k
		}
	}
	await(rng.IntN(writes))
	a.ok(g.Free(at))
	at, err = g.Alloc(gpu.KindDevice, size, 0) // the same memory: there is no other
	a.ok(err)
	a.ok(g.Fill(at, 0x55, 1, size))
	await(writes)
	failed := false
	for i, wc := range wcs {
		want := rdma.Success
		if failed {
			want = rdma.FlushErr
		} else if wc.Status != rdma.Success {
			failed, want = true, rdma.RemAccessErr
		}
		if wc.ID != uint64(i) || wc.Status != want {
			t.Fatalf("seed %d: completion %d is %+v, want %v", seed, i, wc, want)
		}
	}
	mem := make([]byte, size)
	a.ok(g.CopyOut(mem, at))
	if i := bytes.IndexByte(mem, 0xaa); i >= 0 {
		t.Fatalf("seed %d: byte %d was written after the memory was freed", seed, i)
	}
	a.ok(errors.Join(g.Free(at), mr.Close(), local.Close()))
	for _, s := range []*side{a, b} {
		for _, c := range []interface{ Close() error }{s.qp, s.cq, s.pd} {
			a.ok(c.Close())
		}
	}
}
