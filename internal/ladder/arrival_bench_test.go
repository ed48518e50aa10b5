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

// read returns the time of a read in nanoseconds.
func (b *proofBench) read(p *Plan, k int) float64 {
	b.ops[0].Off = int64(uint64(k*7919)%(proofFile/b.n)) * int64(b.n)
	b.res[0] = route.Receipt{}
	start := time.Now()
	b.check(p.Run(context.Background(), b.ops, b.res))
	return float64(time.Since(start))
}

// measure returns median times. It reads in turn, one by one and each first as often:
// other load is the same for both.
func (b *proofBench) measure(reads int) (with, without float64) {
	var ours, base []float64
	for k := range reads {
		if k%2 == 0 {
			ours = append(ours, b.read(b.with, k))
		}
		base = append(base, b.read(b.without, k))
		if k%2 == 1 {
			ours = append(ours, b.read(b.with, k))
		}
	}
	return median(ours), median(base)
}

// benchProof has the software machine's nvidia-fs read with and without proof of
// arrival. The ratio is the median time without over that with proof.
func benchProof(b *testing.B, n uint64) {
	p := newProofBench(b, soft.Config{Memory: 64 << 20}, filepath.Join(b.TempDir(), "f"), route.NVFS, n)
	var with, without float64
	for b.Loop() {
		with, without = p.measure(2000)
	}
	b.ReportMetric(without/with, "ratio")
	b.ReportMetric(with-without, "proof-ns")
	b.ReportMetric(with, "ours-ns")
	b.ReportMetric(without, "base-ns")
}

func BenchmarkProof4K(b *testing.B)  { benchProof(b, 4<<10) }
func BenchmarkProof64K(b *testing.B) { benchProof(b, 64<<10) }
func BenchmarkProof1M(b *testing.B)  { benchProof(b, 1<<20) }
