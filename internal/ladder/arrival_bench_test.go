package ladder

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// A proofBench reads a file by a direct route with and without proof of arrival.
type proofBench struct {
	testing.TB
	with, without *Plan
	timed         *timedRoute // of both
	ops           []Op
	res           []route.Receipt
	n             uint64
}

const proofFile = 16 << 20

func newProofBench(t testing.TB, cfg soft.Config, path string, id route.ID, n uint64) *proofBench {
	b := &proofBench{TB: t, res: make([]route.Receipt, 1), n: n}
	m, err := machine.FromSoft(cfg, "benchmark")
	b.check(err)
	b.Cleanup(func() { m.Close() })
	device, err := m.GPU.Open(0)
	b.check(err)
	b.Cleanup(func() { device.Close() })
	b.check(os.WriteFile(path, noisy(proofFile, 1), 0o600))
	file, err := os.Open(path)
	b.check(err)
	defer file.Close()
	b.check(file.Sync())
	f, err := storage.Adopt(int(file.Fd()))
	b.check(err)
	b.Cleanup(func() { f.Close() })
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	b.check(err)
	l := Open(device, dev.Of(m), nil, Settings{})
	b.Cleanup(func() { l.Close() })
	mem := gpu.Span{Base: a, Len: n}
	l.Register(mem, gpu.KindDevice)
	b.Cleanup(func() { l.Deregister(mem) })
	if b.with, err = l.Plan(FileSource(f)).Only(id); err != nil {
		b.Skip(err)
	}
	b.timed = &timedRoute{Route: b.with.routes[0]}
	b.with.routes = []Route{b.timed}
	believes := *b.with
	believes.prover = nil
	b.without = &believes
	b.ops = []Op{{Src: FileSource(f), Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}
	for k := range trialTransfers + 1 { // until samples will do
		b.read(b.with, k)
	}
	return b
}

func (b *proofBench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// A timedRoute knows how long it took.
type timedRoute struct {
	Route
	took time.Duration
}

func (r *timedRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) (err error) {
	if o := &ops[0]; !o.sized { // somebody must ask; the prover, if there is one, does it for the route
		if o.size, err = o.file().Size(); err != nil {
			return err
		}
		o.sized = true
		defer func() { o.sized = false }()
	}
	start := time.Now()
	defer func() { r.took = time.Since(start) }()
	return r.Route.Run(ctx, ops, res)
}

// read returns how long a read took, and how much of it was not in the route.
func (b *proofBench) read(p *Plan, k int) (total, outside float64) {
	b.ops[0].Off = int64(uint64(k*7919)%(proofFile/b.n)) * int64(b.n)
	b.res[0] = route.Receipt{}
	start := time.Now()
	b.check(p.Run(context.Background(), b.ops, b.res))
	took := time.Since(start)
	return float64(took), float64(took - b.timed.took)
}

// A proofCost is in nanoseconds, each a median.
type proofCost struct {
	without float64 // a read without proof
	proof   float64 // what is done for the proof before and after the route
	slowed  float64 // how much longer the route itself takes: caches are less warm
}

// measure reads in pairs, one read with and one without proof, each first as often, so
// that other load is the same for both. What is outside the route is known to some
// nanoseconds; the route itself varies by more than the proof takes.
func (b *proofBench) measure(reads int) (c proofCost) {
	var base, outside, ours, slowed []float64
	for k := range reads {
		var t, o [2]float64 // without, with
		for i := range 2 {
			with := (k + i) % 2
			t[with], o[with] = b.read([...]*Plan{b.without, b.with}[with], k)
		}
		base, outside, ours = append(base, t[0]), append(outside, o[0]), append(ours, o[1])
		slowed = append(slowed, t[1]-o[1]-(t[0]-o[0]))
	}
	return proofCost{median(base), median(ours) - median(outside), median(slowed)}
}

// benchProof has the software machine's nvidia-fs read with and without proof of
// arrival. The ratio is the time without over that with proof.
func benchProof(b *testing.B, n uint64) {
	p := newProofBench(b, soft.Config{Memory: 64 << 20}, filepath.Join(b.TempDir(), "f"), route.NVFS, n)
	var c proofCost
	for b.Loop() {
		c = p.measure(2000)
	}
	b.ReportMetric(c.without/(c.without+c.proof), "ratio")
	b.ReportMetric(c.without+c.proof, "ours-ns")
	b.ReportMetric(c.without, "base-ns")
	b.ReportMetric(c.proof, "proof-ns")
	b.ReportMetric(c.slowed, "slowed-ns")
}

func BenchmarkProof4K(b *testing.B)  { benchProof(b, 4<<10) }
func BenchmarkProof64K(b *testing.B) { benchProof(b, 64<<10) }
func BenchmarkProof1M(b *testing.B)  { benchProof(b, 1<<20) }
