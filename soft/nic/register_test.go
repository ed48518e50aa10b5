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
	everything := []rdma.Method{rdma.PeerMemory, rdma.ViaDMABuf, rdma.Staging}
	for name, c := range map[string]struct {
		cfg     soft.Config
		nic     soft.NIC
		methods []rdma.Method
		want    rdma.Method
		refused int
	}{
		"peer memory":         {methods: nil, want: rdma.PeerMemory},
		"no module":           {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, want: rdma.ViaDMABuf, refused: 1},
		"asked for dma-buf":   {methods: []rdma.Method{rdma.ViaDMABuf}, want: rdma.ViaDMABuf},
		"nothing direct":      {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, nic: soft.NIC{NoDMABuf: true}, methods: everything, want: rdma.Staging, refused: 2},
		"staging not allowed": {cfg: soft.Config{Without: []string{"nvidia-peermem"}}, nic: soft.NIC{NoDMABuf: true}, refused: 2},
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
			r, err := rdma.RegisterGPU(target.pd, g, a+100, 50_000, all, rdma.GPUOptions{Methods: c.methods})
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
