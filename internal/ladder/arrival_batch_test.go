package ladder

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/route"
)

// Random batches beside a route that lies about some of their ops and fails at others:
// reads that share memory, writes that overlap, reads and writes. What is counted is right,
// whatever the batch returns, and a required write that fails leaves the file as it was.
func TestBatchesBesideALiar(t *testing.T) {
	test := func(t *testing.T, l *liarLab) {
		b := &liarBatches{liarLab: l, rnd: rand.New(rand.NewPCG(5, 6))}
		any := l.plan
		only, err := any.Only(l.id)
		check(t, err)
		fails := &liar{Route: l.liar.Route, v: l.v, files: l.liar.files}
		l.override(func(_ Route, ctx context.Context, ops []Op, res []route.Receipt) error {
			for i := range ops {
				if fails.next = honest; b.rnd.IntN(8) == 0 {
					fails.next = 1 + lie(b.rnd.IntN(int(numLies)-1))
				}
				if fails.next == delayed || fails.next == misdirected { // would hit memory of other ops
					fails.next = dropped
				}
				if err := fails.Run(ctx, ops[i:i+1], res[i:i+1]); err != nil {
					return err
				}
				if b.rnd.IntN(8) == 0 {
					return ops[i].failAt(ops[i].Off, "", unix.ENODEV)
				}
			}
			return nil
		})
		for i := range *liarTransfers / 2 {
			l.v.trial = b.rnd.IntN(2) * trialTransfers
			l.forget(b.rnd.IntN(8) == 0)
			// The proof before a first write reads 32 blocks, and would not let one pass.
			l.v.file(l.file).known[l.id][route.Write].proved.Store(b.rnd.IntN(8) > 0)
			strict := b.rnd.IntN(2) == 0
			if l.plan = any; strict {
				l.plan = only
			}
			b.one(i, strict)
		}
		t.Logf("%d batches: %d failed, %d ops counted in them", *liarTransfers/2, b.failed, b.kept)
		if b.failed == 0 || b.kept == 0 {
			t.Error("the test shows nothing")
		}
	}
	liarLabs(t, test)
}

// liarBatches makes batches and compares what they did.
type liarBatches struct {
	*liarLab
	rnd          *rand.Rand
	failed, kept int
}

func (b *liarBatches) one(seed int, strict bool) {
	const block, batchFile = 4096, 32 * 4096 // that is used
	b.t.Helper()
	b.setGPU(0, noisy(labSize, byte(seed)))
	model, mem := b.fileBytes(0, batchFile), b.gpuBytes(0, labSize)
	before := bytes.Clone(model)
	ops := make([]Op, 1+b.rnd.IntN(5))
	res := make([]route.Receipt, len(ops))
	kind := b.rnd.IntN(3) // reads, writes, both
	overlap, shared := false, make([]bool, labSize)
	for i := range ops {
		dir := route.Dir(kind)
		if kind == 2 {
			dir = route.Dir(b.rnd.IntN(2))
		}
		n := uint64(block) << b.rnd.IntN(4)
		at := uint64(i) * labSize / 5 / block * block
		if b.rnd.IntN(4) == 0 && kind != 2 {
			at = uint64(b.rnd.IntN(labSize/block-8)) * block
		}
		n = min(n, labSize-at)
		ops[i] = b.opAt(dir, uint64(b.rnd.IntN(24))*block, at, n)
		for _, o := range ops[:i] {
			if o.Dir == route.Read && dir == route.Read && o.Mem.Off < at+n && at < o.Mem.Off+o.Mem.Len {
				for k := max(at, o.Mem.Off); k < min(at+n, o.Mem.Off+o.Mem.Len); k++ {
					shared[k] = true
				}
			}
			overlap = overlap || dir == route.Write && o.Dir == route.Write && o.Off < ops[i].end() && ops[i].Off < o.end()
		}
		if dir == route.Read {
			copy(mem[at:at+n], model[ops[i].Off:])
		} else {
			copy(model[ops[i].Off:], mem[at:at+n])
		}
	}
	want := make([][]byte, len(ops)) // by each read
	for i := range ops {
		want[i] = bytes.Clone(mem[ops[i].Mem.Off:][:ops[i].Mem.Len])
	}
	err := b.plan.Run(context.Background(), ops, res)
	file := b.fileBytes(0, batchFile)
	if err == nil && !bytes.Equal(file, model) {
		b.t.Fatalf("batch %d: the file has other bytes", seed)
	}
	if err != nil {
		b.failed++
		if !errors.Is(err, unix.ENODEV) && !isRequire(err) {
			b.t.Fatalf("batch %d: %v", seed, err)
		}
		if strict && kind == 1 && !overlap && !bytes.Equal(file, before) {
			b.t.Fatalf("batch %d: %v, and the file has changed", seed, err)
		}
	}
	for i := range ops {
		o := &ops[i]
		if uint64(res[i].Bytes) != o.Mem.Len || kind == 2 && err != nil {
			if err == nil {
				b.t.Fatalf("batch %d, op %d: %v", seed, i, &res[i])
			}
			continue
		}
		if err != nil {
			b.kept++
		}
		if o.Dir == route.Write {
			if !overlap && !bytes.Equal(file[o.Off:o.end()], want[i]) {
				b.t.Fatalf("batch %d, op %d: counted, and the file has other bytes: %v, %v", seed, i, err, &res[i])
			}
			continue
		}
		got := b.gpuBytes(o.Mem.Off, o.Mem.Len)
		for k := range got {
			if !shared[o.Mem.Off+uint64(k)] && got[k] != want[i][k] {
				b.t.Fatalf("batch %d, op %d: counted, and byte %d of %d in memory is wrong: %v, %v", seed, i, k, len(got), err, &res[i])
			}
		}
	}
}
