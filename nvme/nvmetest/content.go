package nvmetest

import (
	"bytes"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/nvme"
)

func testIdentity(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	i := r.c.Info()
	if i.Name == "" || i.Serial == "" || i.Model == "" || i.MaxTransfer < 4096 || i.MaxEntries < 2 || i.Queues < 1 {
		t.Errorf("%+v", i)
	}
	if s := r.ns.BlockSize(); s != 512 && s != 4096 {
		t.Errorf("blocks of %d bytes", s)
	}
	t.Logf("%+v, %d blocks of %d bytes", i, r.ns.Blocks(), r.ns.BlockSize())
}

// testContent compares random reads and writes with a model of the drive.
func testContent(t *testing.T, d Drive) { content(t, d, nvme.Config{}, 150) }

// testPolled is testContent without interrupts.
func testPolled(t *testing.T, d Drive) { content(t, d, nvme.Config{Poll: true, Queues: 1}, 50) }

func content(t *testing.T, d Drive, cfg nvme.Config, rounds int) {
	r := open(t, d, cfg)
	bs := r.ns.BlockSize()
	model := make([]byte, area)
	r.write(0, r.blocks(area), 0)
	copy(model, r.buf.Bytes())
	for i := range rounds {
		n := 1 + r.rnd.IntN(min(64, area/bs))
		lba := r.rnd.IntN(area/bs - n + 1)
		if r.rnd.IntN(2) == 0 {
			r.write(uint64(lba), uint64(n), uint64(i+1))
			copy(model[lba*bs:], r.buf.Bytes()[:n*bs])
			continue
		}
		r.expect(uint64(lba), uint64(n), model[lba*bs:])
	}
	r.expect(0, r.blocks(area), model)
	r.check(r.ns.Flush(r.ctx))
}

// testLarge transfers more than one command can.
func testLarge(t *testing.T, d Drive) {
	for _, limit := range []int{4096, 64 << 10, 4 << 20} {
		r := open(t, d, nvme.Config{MaxTransfer: limit})
		r.write(0, r.blocks(area), uint64(limit))
		r.expect(0, r.blocks(area), bytes.Clone(r.buf.Bytes()))
		r.check(r.c.Close())
	}
}

// testOffsets reads to all kinds of offsets in a buffer and checks the bytes
// around.
func testOffsets(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	bs := r.ns.BlockSize()
	const span = 96 << 10
	r.write(0, r.blocks(span), 77)
	want := bytes.Clone(r.buf.Bytes()[:span])
	b := r.host(span + 3*4096)
	defer b.Close()
	for _, off := range []int{0, 4, 512, 2048, 4092, 4096, 4100, 8188} {
		for _, n := range []int{bs, 4096, 8192, 12288, span} {
			for i := range b.Bytes() {
				b.Bytes()[i] = 0xaa
			}
			r.check(r.ns.Read(r.ctx, b, uint64(off), 0, r.blocks(n)))
			got := b.Bytes()
			if !bytes.Equal(got[off:off+n], want[:n]) {
				t.Fatalf("%d bytes at offset %d differ from the drive", n, off)
			}
			if bytes.ContainsFunc(got[:off], notAA) || bytes.ContainsFunc(got[off+n:], notAA) {
				t.Fatalf("read of %d bytes to offset %d changed bytes around them", n, off)
			}
			// And write it back.
			r.check(r.ns.Write(r.ctx, b, uint64(off), 0, r.blocks(n)))
		}
	}
	r.expect(0, r.blocks(span), want)
}

// notAA finds bytes other than 0xaa, which decode to RuneError.
func notAA(c rune) bool { return c != '\ufffd' }

// testDepths fills queues of several sizes for several rounds.
func testDepths(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	bs := r.ns.BlockSize()
	r.write(0, r.blocks(area), 5)
	want := bytes.Clone(r.buf.Bytes())
	for _, depth := range []int{1, 2, 3, 32, 63, 200} {
		q, err := r.c.NewQueue(depth)
		r.check(err)
		if q.Depth() < 1 || q.Depth() > depth {
			t.Fatalf("queue of depth %d has depth %d", depth, q.Depth())
		}
		buf := r.host(q.Depth() * bs)
		flood(r, q, buf, want, 3*q.Depth()+7)
		if n := q.Strays(); n > 0 {
			t.Errorf("%d stray completions", n)
		}
		r.check(q.Close())
		r.check(buf.Close())
	}
}

// flood reads total blocks with one command each, and keeps the queue full.
func flood(r *fixture, q *nvme.Queue, buf *nvme.Buffer, want []byte, total int) {
	r.Helper()
	bs := r.ns.BlockSize()
	reqs := make([]nvme.Request, q.Depth())
	answers := make([]int, q.Depth())
	for i := range reqs {
		reqs[i] = nvme.Request{Op: nvme.OpRead, NS: r.ns, Blocks: 1, Buf: buf, Off: uint64(i * bs)}
	}
	done := make([]*nvme.Request, q.Depth())
	started, ended := 0, 0
	start := func(q1 *nvme.Request) {
		q1.LBA = uint64(started*13) % r.blocks(area)
		if n, err := q.Submit(q1); n != 1 || err != nil {
			r.Fatalf("command %d with %d in flight: %v", started, started-ended, err)
		}
		started++
	}
	for i := range reqs {
		start(&reqs[i])
	}
	if n, err := q.Submit(&nvme.Request{Op: nvme.OpFlush, NS: r.ns}); n != 0 || err != nvme.ErrFull {
		r.Fatalf("one command too many: %d, %v", n, err)
	}
	for ended < total {
		n, err := q.Reap(r.ctx, done)
		r.check(err)
		for _, q1 := range done[:n] {
			ended++
			answers[q1.Off/uint64(bs)]++
			r.check(q1.Err())
			if got := buf.Bytes()[q1.Off:][:bs]; !bytes.Equal(got, want[int(q1.LBA)*bs:][:bs]) {
				r.Fatalf("block %d does not have the written data", q1.LBA)
			}
			if started < total {
				start(q1)
			}
		}
	}
	if started != ended {
		r.Errorf("%d commands started, %d completed", started, ended)
	}
	for i, n := range answers {
		if n == 0 {
			r.Errorf("request %d never completed", i)
		}
	}
}

// testConcurrent reads and writes from several goroutines, each in its own range.
func testConcurrent(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{Queues: 2, Depth: 5})
	const workers, size = 8, 32 << 10
	var all sync.WaitGroup
	for w := range workers {
		buf := r.host(size)
		all.Go(func() {
			lba := r.blocks(w * size)
			want := make([]byte, size)
			for round := range 12 {
				fill(want, uint64(w*100+round))
				copy(buf.Bytes(), want)
				if err := r.ns.Write(r.ctx, buf, 0, lba, r.blocks(size)); err != nil {
					t.Error(err)
					return
				}
				clear(buf.Bytes())
				if err := r.ns.Read(r.ctx, buf, 0, lba, r.blocks(size)); err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(buf.Bytes(), want) {
					t.Errorf("worker %d, round %d: read other data than was written", w, round)
					return
				}
			}
		})
	}
	all.Wait()
}

func testZeroes(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	bs := r.ns.BlockSize()
	r.write(0, 16, 3)
	want := bytes.Clone(r.buf.Bytes()[:16*bs])
	r.check(r.ns.WriteZeroes(r.ctx, 3, 5))
	clear(want[3*bs : 8*bs])
	r.expect(0, 16, want)
}
