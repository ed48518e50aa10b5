package ladder

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
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
// arrival in turn. The ratio is the time without over the time with proof.
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
	reads := int(max(16, (4<<20)/n/4))
	run := func(p *Plan) float64 {
		start := time.Now()
		for k := range reads {
			ops[0].Off = int64(uint64(k*7919)%(size/n)) * int64(n)
			res[0] = route.Receipt{}
			check(p.Run(context.Background(), ops, res))
		}
		return time.Since(start).Seconds()
	}
	for range trialTransfers { // until samples will do
		res[0] = route.Receipt{}
		check(with.Run(context.Background(), ops, res))
	}
	var ratios []float64
	ours, base := math.Inf(1), math.Inf(1)
	for b.Loop() {
		ratios = ratios[:0]
		run(with)
		run(&without)
		for range 31 {
			w, wo := run(with), run(&without)
			ratios = append(ratios, wo/w)
			ours, base = min(ours, w), min(base, wo)
		}
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ours*1e9, "ours-ns")
	b.ReportMetric(base*1e9, "base-ns")
}

func BenchmarkProof4K(b *testing.B)  { benchProof(b, 4<<10) }
func BenchmarkProof64K(b *testing.B) { benchProof(b, 64<<10) }
func BenchmarkProof1M(b *testing.B)  { benchProof(b, 1<<20) }
