package ladder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel/nvfs"
)

// A mirrorWitness is a host above a mirror whose second drive has taken other bytes. As Linux
// does, it reads from the first drive what is in flight alone, and from both what is together.
type mirrorWitness struct {
	witness
	second   byte  // what the second drive has
	together []int // how many reads
}

func (w *mirrorWitness) readTogether(p []byte, offs []int64) error {
	w.together = append(w.together, len(offs))
	err := w.witness.readTogether(p, offs)
	if len(offs) >= 8 { // fewer may be one after the other
		for k := 1; k < len(offs); k += 2 {
			copy(p[k*placeBlock:], bytes.Repeat([]byte{w.second}, placeBlock))
		}
	}
	return err
}

// The first write to a mirror is as short as a block, and is made in place. It is read as
// often as a long one, so that each drive serves some of the reads.
func TestShortWritesToMirrors(t *testing.T) {
	const size = 64 << 10
	data := noisy(size, 1)
	for _, n := range []uint64{4 << 10, 8 << 10, 60 << 10, 64 << 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newStacked(t, "", data)
			s.file.Name += "/no-directory" // there can be no file beside it
			p := s.plan.prover.file(s.file)
			host := &mirrorWitness{witness: p.host}
			p.host = host
			s.mem = s.mem.Slice(0, n)
			other := noisy(int(n), 2)
			s.check(s.gpu.CopyIn(s.mem.Base, other))
			r, err := s.run(s.plan, route.Write)
			s.check(err)
			if r.By[route.NVFS] > 0 || p.known[route.NVFS][route.Write].lie.Load() == nil {
				t.Errorf("believed: %v", &r)
			}
			if len(host.together) == 0 || slices.Min(host.together) != legReads {
				t.Errorf("reads in flight together: %v, want %d each", host.together, legReads)
			}
			if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now[:n], other) || !bytes.Equal(now[n:], data[n:]) {
				t.Errorf("the file has other bytes, %v", err)
			}
		})
	}
}

// A route whose host memory cannot be filled before a proof has zeros in it, so both drives of
// a mirror have them. The next write is put to the proof again.
func TestZerosProveNothing(t *testing.T) {
	const size = 64 << 10
	s := newStacked(t, "raid1-half", noisy(size, 1))
	s.plan.routes[0] = unscrubbed{s.plan.routes[0]}
	s.file.Name += "/no-directory"
	s.check(s.gpu.Fill(s.mem.Base, 0, 1, size))
	r, err := s.run(s.plan, route.Write)
	s.check(err)
	if r.Route != route.NVFS {
		t.Fatalf("the test shows nothing: %v", &r)
	}
	other := noisy(size, 2)
	s.check(s.gpu.CopyIn(s.mem.Base, other))
	if r, err = s.run(s.plan, route.Write); err != nil || r.By[route.NVFS] > 0 {
		t.Errorf("believed after a proof with zeros: %v, %v", &r, err)
	}
	if now, err := os.ReadFile(s.path); err != nil || !bytes.Equal(now, other) {
		t.Errorf("the file has other bytes, %v", err)
	}
}

// An unscrubbed route does not know that a write is part of a proof.
type unscrubbed struct{ Route }

func (u unscrubbed) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].proving = ops[i].proving && ops[i].Dir == route.Read
	}
	return u.Route.Run(ctx, ops, res)
}

// halfMirror has the drive of a lab be a mirror whose second drive has no hooks, and returns how
// many of its blocks differ from those of the first.
func (l *lab) halfMirror() (divergent func() int) {
	layers, err := block.ParseLayers("raid1-half")
	l.check(err)
	l.drive.Below(layers)
	return func() int {
		n, err := l.drive.Divergent(l.file.FD())
		l.check(err)
		return n
	}
}

// A read that the second drive of a mirror served has left its bytes in the shadow buffer. A
// write of the same bytes shows nothing about that drive if they are still there: the proof
// of a write has others put there.
func TestProofsFillTheShadowBuffer(t *testing.T) {
	for _, bounced := range []bool{false, true} {
		t.Run(fmt.Sprintf("bounced=%v", bounced), func(t *testing.T) {
			l := newLab(t, true, false, nvfs.Config{})
			divergent := l.halfMirror()
			op := Op{Src: FileSource(l.file), Mem: l.mem.Slice(0, 64<<10), Kind: gpu.KindDevice, Buf: always{}, strict: true}
			if bounced {
				op.Mem.Off += 512 // as of memory that the drive cannot reach
			}
			move := func(dir route.Dir, proving bool) {
				t.Helper()
				op.Dir, op.proving = dir, proving
				l.check(l.route.Run(context.Background(), []Op{op}, make([]route.Receipt, 1)))
			}
			move(route.Read, false)
			move(route.Read, false) // by the second drive first
			if move(route.Write, false); divergent() != 0 {
				t.Fatal("the test shows nothing: the second drive has other bytes")
			}
			if move(route.Write, true); divergent() != 16 {
				t.Errorf("%d blocks of the second drive have other bytes, want 16", divergent())
			}
		})
	}
}

// Zeros that the second drive of a mirror did not get are found, because the route knows that
// it must not have zeros in host memory by chance.
func TestZerosAreCompared(t *testing.T) {
	const size = 64 << 10
	s := newStacked(t, "", noisy(size, 1))
	s.file.Name += "/no-directory"
	p := s.plan.prover.file(s.file)
	p.host = &mirrorWitness{witness: p.host, second: 0xa5}
	first := &firstOp{Route: s.plan.routes[0]}
	s.plan.routes[0] = first
	s.check(s.gpu.Fill(s.mem.Base, 0, 1, size))
	r, err := s.run(s.plan, route.Write)
	s.check(err)
	if r.By[route.NVFS] > 0 || p.known[route.NVFS][route.Write].lie.Load() == nil || first.op == nil || !first.op.proving {
		t.Errorf("believed: %v, by the proof %+v", &r, first.op)
	}
}

// A firstOp keeps the first op of a route.
type firstOp struct {
	Route
	op *Op
}

func (f *firstOp) Run(ctx context.Context, ops []Op, res []route.Receipt) error {
	if f.op == nil {
		f.op = &ops[0]
	}
	return f.Route.Run(ctx, ops, res)
}

// TestLegBlocks: whole blocks that are not zero, the last one first.
func TestLegBlocks(t *testing.T) {
	const block = placeBlock
	data := noisy(4*block, 1)
	clear(data[block : 2*block])
	for _, c := range []struct {
		off, n int64
		want   []int64 // offsets
	}{
		{0, 4 * block, []int64{3 * block, 2 * block, 0}},
		{8 * block, 2 * block, []int64{8 * block}},
		{100, 4 * block, []int64{3 * block, 2 * block, block}}, // the zeros are in two blocks
		{100, block, nil},
		{0, block - 1, nil},
		{0, 0, nil},
	} {
		var got []int64
		legs, telling := legBlocks(c.off, data[:c.n])
		if telling != (c.want != nil) {
			t.Errorf("%d bytes at %d: tell drives apart: %v", c.n, c.off, telling)
		}
		for _, b := range legs {
			got = append(got, b.off)
			if !bytes.Equal(b.data, data[b.off-c.off:][:block]) {
				t.Errorf("%d bytes at %d: the block at %d has other bytes", c.n, c.off, b.off)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d bytes at %d: blocks at %v, want %v", c.n, c.off, got, c.want)
		}
	}
	if legs, telling := legBlocks(0, make([]byte, 2*block)); telling || len(legs) != 2 || legs[0].off != block {
		t.Errorf("zeros tell drives apart: %v, blocks %v", telling, legs)
	}
}

// Blocks are read together by io_uring and by threads.
func TestReadTogether(t *testing.T) {
	data := noisy(8*placeBlock, 1)
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for what, read := range map[string]func(int, []byte, []int64) error{"io_uring": submitTogether, "threads": preadTogether} {
		t.Run(what, func(t *testing.T) {
			offs := []int64{7 * placeBlock, 0, 3 * placeBlock, 3 * placeBlock}
			p := alignedBytes(len(offs)*placeBlock, hostPage)
			if err := read(int(f.Fd()), p, offs); err != nil {
				if what == "io_uring" {
					t.Skip(err)
				}
				t.Fatal(err)
			}
			for k, off := range offs {
				if !bytes.Equal(p[k*placeBlock:][:placeBlock], data[off:][:placeBlock]) {
					t.Errorf("block at %d has other bytes", off)
				}
			}
			if err := read(int(f.Fd()), p, []int64{0, 8 * placeBlock}); err == nil {
				t.Error("a block behind the end of the file was read")
			}
		})
	}
	if err := wholeBlock(5, nil); err == nil || wholeBlock(placeBlock, io.EOF) != io.EOF || wholeBlock(placeBlock, nil) != nil {
		t.Error("a short read is not an error")
	}
}
