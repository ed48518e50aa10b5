package ladder

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

const (
	longRead = 16 << 20
	longStep = longRead / maxSentinels // has a sentinel
)

// A partRoute loses the bytes of a part of each read, or fails.
type partRoute struct {
	Route
	from uint64
	err  error
}

func (p *partRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	if p.err != nil {
		return p.err
	}
	op := ops[0]
	for _, part := range [][2]uint64{{0, p.from}, {p.from + longStep, op.Mem.Len}} {
		if part[0] == part[1] {
			continue
		}
		o := op
		o.Off += int64(part[0])
		o.Mem = op.Mem.Slice(part[0], part[1]-part[0])
		if err := p.Route.Run(ctx, []Op{o}, make([]route.Receipt, 1)); err != nil {
			return err
		}
	}
	res[0].Bytes = int64(op.Mem.Len)
	return nil
}

// longLab has a file and memory of longRead bytes.
func longLab(t *testing.T) (*liarLab, *partRoute) {
	t.Helper()
	device, _ := softDevice(t)
	a, err := device.Alloc(gpu.KindDevice, longRead, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := directFile(t, noisy(longRead, 3))
	part := &partRoute{Route: library{newHost(device)}}
	l := newLiarLabOf(t, device, part, gpu.Span{Base: a, Len: longRead}, route.Vendor, [2]Source{FileSource(f), FileSource(f)})
	l.file = f
	l.v.trial = trialTransfers
	return l, part
}

// A read on trial that is too long to be compared as a whole is looked at no less than a
// later one, which has a sentinel in the part that is lost here.
func TestLongReadsOnTrial(t *testing.T) {
	l, lossy := longLab(t)
	want := l.fileBytes(0, longRead)
	rnd := rand.New(rand.NewPCG(5, 5))
	for i := range 24 {
		l.forget(true)
		l.setGPU(0, make([]byte, longRead))
		lossy.from = uint64(rnd.IntN(maxSentinels)) * longStep
		r, err := l.run(route.Read, 0, 0, longRead)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(l.gpuBytes(0, longRead), want) {
			t.Errorf("read %d: %d bytes from %d on are lost and acknowledged: %v", i, longStep, lossy.from, &r)
		}
	}
}

// The first read of a file leaves memory that it does not reach alone.
func TestLongReadThatFails(t *testing.T) {
	l, failing := longLab(t)
	failing.err = errors.New("no such luck")
	before := noisy(longRead, 9)
	l.setGPU(0, before)
	if _, err := l.run(route.Read, 0, 0, longRead); !errors.Is(err, failing.err) {
		t.Fatalf("the read: %v, want %v", err, failing.err)
	}
	if !bytes.Equal(l.gpuBytes(0, longRead), before) {
		t.Error("a read that failed has changed memory")
	}
}

// The probability that one read on trial with a fault in a part of it is found is what
// docs/direct.md says of longer ones: a part is compared, or a place is in the fault.
func TestLongTrialDetectionProbability(t *testing.T) {
	s := newSamples([32]byte{8})
	for _, c := range []struct {
		faultyPart
		wide, lost, changed float64 // found by a part, by a sentinel, by a pair
	}{
		{faultyPart{32 << 20, 5 << 20, 4 << 10}, 17.0 / 496, 1.0 / 128, 2.0 * 63 / 8192},
		// Of its two steps with a sentinel it has a ninth and eight ninths.
		{faultyPart{16 << 20, 3300 << 10, 256 << 10}, 80.0 / 240, 1 - 57.0/64*7/64, 65.0 * 31 / 4096},
	} {
		for _, lost := range []bool{true, false} {
			want := 1 - (1-c.wide)*(1-c.changed)
			if lost {
				want = 1 - (1-c.wide)*(1-c.changed)*(1-c.lost)
			}
			probability(t, c.faultyPart, want, func() bool {
				s.pairs = s.pairs[:0]
				hit := c.foundBy(s.choosePairs(0, c.size, readPairs(c.size)))
				for _, p := range wideParts(s, 0, c.size) {
					hit = hit || p.off < c.from+c.len && p.off+int64(p.n) > c.from
				}
				st := newSteps(0, c.size, readSentinels(c.size), s.rand.Uint64())
				for k := range st.count {
					hit = hit || lost && c.has(st.place(k))
				}
				return hit
			})
		}
	}
}
