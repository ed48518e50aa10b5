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

// benchProof has the software machine's nvidia-fs read with and without proof of
// arrival in turn. The ratio is the median time without over that with proof.
func benchProof(b *testing.B, n uint64) {
	const size = 16 << 20
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "benchmark")
	check(err)
	defer m.Close()
	device, err := m.GPU.Open(0)
	check(err)
	defer device.Close()
	path := filepath.Join(b.TempDir(), "f")
	check(os.WriteFile(path, noisy(size, 1), 0o600))
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	check(file.Sync())
	f, err := storage.Adopt(int(file.Fd()))
	check(err)
	defer f.Close()
	a, err := device.Alloc(gpu.KindDevice, n, 0)
	check(err)
	l := Open(device, dev.Of(m), nil, Settings{})
	defer l.Close()
	mem := gpu.Span{Base: a, Len: n}
	l.Register(mem, gpu.KindDevice)
	defer l.Deregister(mem)
	with, err := l.Plan(FileSource(f)).Only(route.NVFS)
	if err != nil {
		b.Skip(err)
	}
	without := *with
	without.prover = nil
	ops, res := []Op{{Src: FileSource(f), Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}, make([]route.Receipt, 1)
	read := func(p *Plan, k int) float64 {
		ops[0].Off = int64(uint64(k*7919)%(size/n)) * int64(n)
		res[0] = route.Receipt{}
		start := time.Now()
		check(p.Run(context.Background(), ops, res))
		return float64(time.Since(start))
	}
	for k := range 2 * trialTransfers { // until samples will do
		read(with, k)
		read(&without, k)
	}
	var ours, base []float64
	for b.Loop() {
		// In turn, one by one and each first as often: other load is the same for both.
		for k := range 1000 {
			if k%2 == 0 {
				ours = append(ours, read(with, k))
			}
			base = append(base, read(&without, k))
			if k%2 == 1 {
				ours = append(ours, read(with, k))
			}
		}
	}
	with50, without50 := median(ours), median(base)
	b.ReportMetric(without50/with50, "ratio")
	b.ReportMetric(with50-without50, "proof-ns")
	b.ReportMetric(with50, "ours-ns")
	b.ReportMetric(without50, "base-ns")
}

func BenchmarkProof4K(b *testing.B)  { benchProof(b, 4<<10) }
func BenchmarkProof64K(b *testing.B) { benchProof(b, 64<<10) }
func BenchmarkProof1M(b *testing.B)  { benchProof(b, 1<<20) }
