package nic_test

import (
	"bytes"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft"
)

// The methods are tried in order; what was not used has a cause and a fix; staging is used
// only if it was asked for.
func TestLadderOfRegistration(t *testing.T) {
	everything := append(rdma.DirectMethods(), rdma.Staging)
	for name, c := range map[string]struct {
		cfg     soft.Config
		nic     soft.NIC
		methods []rdma.Method
		refuse  []rdma.Method
		want    rdma.Method
		refused int
	}{
		"peer memory":         {methods: nil, want: rdma.PeerMemory},
		"no module":           {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, want: rdma.ViaPCIeDMABuf, refused: 1},
		"asked for dma-buf":   {methods: []rdma.Method{rdma.ViaDMABuf}, want: rdma.ViaDMABuf},
		"peer refused":        {refuse: []rdma.Method{rdma.PeerMemory}, want: rdma.ViaPCIeDMABuf, refused: 1},
		"dma-buf only":        {refuse: []rdma.Method{rdma.PeerMemory, rdma.ViaPCIeDMABuf}, want: rdma.ViaDMABuf, refused: 2},
		"all direct refused":  {methods: everything, refuse: rdma.DirectMethods(), want: rdma.Staging, refused: 3},
		"nothing direct":      {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, nic: soft.NIC{NoDMABuf: true}, methods: everything, want: rdma.Staging, refused: 3},
		"staging not allowed": {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, nic: soft.NIC{NoDMABuf: true}, refused: 3},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.NICs = []soft.NIC{c.nic, {GPU: -1}}
			m := machine(t, c.cfg)
			target, from := newSide(t, open(t, m, "soft0")), newSide(t, open(t, m, "soft1"))
			connect(t, from, target)
			g, err := m.GPU.Open(0)
			from.ok(err)
			a, err := g.Alloc(gpu.KindDevice, 1<<20, 0)
			from.ok(err)
			r, err := rdma.RegisterGPU(target.pd, g, a+100, 50_000, all, rdma.GPUOptions{Methods: c.methods, Refuse: c.refuse})
			if c.want == "" {
				var ge *rdma.GPUError
				if !errors.As(err, &ge) || len(ge.Refused) != c.refused || !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), "modprobe nvidia-peermem") {
					t.Errorf("error %v", err)
				}
			} else {
				from.ok(err)
				writeAndLook(t, g, a+100, r, from)
				if r.Method != c.want || len(r.Refused) != c.refused {
					t.Errorf("method %q, refused %v", r.Method, r.Refused)
				}
				from.ok(r.Close())
			}
			from.ok(errors.Join(g.Free(a), g.Close()))
			from.close()
			target.close()
		})
	}
}

// What the caller refuses is not tried, and is reported with the others, each by its name.
func TestRefusedByTheCaller(t *testing.T) {
	m := machine(t, soft.Config{NICs: []soft.NIC{{}}})
	target := newSide(t, open(t, m, "soft0"))
	g, err := m.GPU.Open(0)
	target.ok(err)
	a, err := g.Alloc(gpu.KindDevice, 1<<20, 0)
	target.ok(err)
	r, err := rdma.RegisterGPU(target.pd, g, a, 50_000, all, rdma.GPUOptions{Refuse: []rdma.Method{rdma.PeerMemory, rdma.ViaPCIeDMABuf}})
	target.ok(err)
	const want = "dma-buf, built-in order; not peer memory: peer memory is refused by the caller; not dma-buf/pcie: dma-buf/pcie is refused by the caller"
	if got := r.Report(); got != want || !errors.Is(r.Refused[0].Err, rdma.ErrRefused) {
		t.Errorf("report %q, refused %v", got, r.Refused)
	}
	target.ok(r.Close())
	_, err = rdma.RegisterGPU(target.pd, g, a, 50_000, all, rdma.GPUOptions{Refuse: rdma.DirectMethods()})
	if !errors.Is(err, rdma.ErrRefused) || strings.Count(err.Error(), "refused by the caller: ") != len(rdma.DirectMethods()) {
		t.Errorf("everything refused: %v", err)
	}
	target.ok(errors.Join(g.Free(a), g.Close()))
	target.close()
}

// writeAndLook writes to a region, and reads it back: the GPU sees what the peer wrote after
// Arrived, and the peer what the GPU wrote after Ready.
func writeAndLook(t *testing.T, g gpu.Device, a gpu.Addr, r *rdma.GPURegion, from *side) {
	t.Helper()
	const n = 50_000
	buf := mapped(t, n)
	pattern(buf, 3)
	local := from.register(rdma.Host(buf), all)
	if s := from.do(rdma.OpWrite, local, rdma.Remote(r), n); s != rdma.Success {
		t.Fatal(s)
	}
	from.ok(r.Arrived(0, n))
	got := make([]byte, n)
	from.ok(g.CopyOut(got, a))
	if !bytes.Equal(got, buf) {
		t.Error("the GPU does not see what was written")
	}
	from.ok(g.Fill(a, 0x77, 1, n))
	from.ok(r.Ready(0, n))
	if s := from.do(rdma.OpRead, local, rdma.Remote(r), n); s != rdma.Success || !bytes.Equal(buf, bytes.Repeat([]byte{0x77}, n)) {
		t.Errorf("the peer does not see what the GPU wrote: %v", s)
	}
	from.ok(local.Close())
}

// Managed memory is refused by every method that an adapter would use, with the reason, and
// staged if that is allowed: never the host's copy without a word.
func TestManagedIsStagedOrRefused(t *testing.T) {
	m := machine(t, soft.Config{NICs: []soft.NIC{{}, {GPU: -1}}})
	target, from := newSide(t, open(t, m, "soft0")), newSide(t, open(t, m, "soft1"))
	connect(t, from, target)
	g, err := m.GPU.Open(0)
	from.ok(err)
	a, err := g.Alloc(gpu.KindManaged, 1<<20, 0)
	from.ok(err)
	if _, err := rdma.RegisterGPU(target.pd, g, a, 50_000, all, rdma.GPUOptions{}); !errors.Is(err, syscall.EOPNOTSUPP) || strings.Count(err.Error(), "managed memory moves") != len(rdma.DirectMethods()) {
		t.Errorf("without staging: %v", err)
	}
	r, err := rdma.RegisterGPU(target.pd, g, a, 50_000, all, rdma.GPUOptions{Methods: append(rdma.DirectMethods(), rdma.Staging), Evidence: "a test"})
	from.ok(err)
	if r.Method != rdma.Staging || r.HostBytes(7) != 7 || r.Evidence != "a test" {
		t.Errorf("method %q, evidence %q", r.Method, r.Evidence)
	}
	writeAndLook(t, g, a, r, from)
	from.ok(errors.Join(r.Close(), g.Free(a), g.Close()))
	from.close()
	target.close()
}
