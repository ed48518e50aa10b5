package nvmetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/nvme"
)

// A walk makes random requests on a queue and compares all of drive and memory
// with a model. Drive and buffer are divided into cells, each used by at most one
// command at a time; data starts anywhere in a cell of the buffer.
type walk struct {
	*fixture
	q    *nvme.Queue
	buf  *nvme.Buffer
	disk []byte // expected contents of the drive
	mem  []byte // expected contents of the buffer
}

const (
	cells    = 24
	diskCell = 8 << 10
	bufCell  = 2 * diskCell
)

// testWalk checks, for random requests in any order, that every command completes
// once and that no other bytes change.
func testWalk(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{Queues: 1})
	w := &walk{fixture: r, buf: r.host(cells * bufCell), disk: make([]byte, cells*diskCell), mem: make([]byte, cells*bufCell)}
	r.write(0, r.blocks(len(w.disk)), 99)
	copy(w.disk, r.buf.Bytes())
	rapid.Check(t, func(t *rapid.T) {
		if w.q == nil {
			w.open(t)
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.step(t)
			w.compare(t)
		}
		w.drive(t)
	})
	if n := w.q.Strays(); n > 0 {
		t.Errorf("%d stray completions", n)
	}
}

func (w *walk) step(t *rapid.T) {
	switch what := rapid.IntRange(0, 19).Draw(t, "what"); {
	case what == 0:
		w.must(t, w.c.Reset())
	case what == 1:
		w.must(t, w.q.Close())
		w.open(t)
	case what == 2:
		w.must(t, w.ns.Flush(w.ctx))
	case what < 8:
		w.zeroes(t)
	default:
		w.batch(t)
	}
}

func (w *walk) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (w *walk) open(t *rapid.T) {
	var err error
	w.q, err = w.c.NewQueue(rapid.IntRange(1, 9).Draw(t, "depth"))
	w.must(t, err)
}

// compare checks the whole buffer.
func (w *walk) compare(t *rapid.T) {
	if !bytes.Equal(w.buf.Bytes(), w.mem) {
		t.Fatal("memory differs from the model")
	}
}

// drive checks the whole drive.
func (w *walk) drive(t *rapid.T) {
	w.must(t, w.ns.Read(w.ctx, w.fixture.buf, 0, 0, w.blocks(len(w.disk))))
	if !bytes.Equal(w.fixture.buf.Bytes()[:len(w.disk)], w.disk) {
		t.Fatal("drive differs from the model")
	}
}

// A move is a command of a batch, with its effect on the model.
type move struct {
	nvme.Request
	onDisk, inMem []byte
	answers       int
}

// batch runs several commands at once, each in its own cells.
func (w *walk) batch(t *rapid.T) {
	bs := w.ns.BlockSize()
	n := rapid.IntRange(1, 16).Draw(t, "commands")
	order := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order of the cells"), 0))
	from, to := order.Perm(cells), order.Perm(cells)
	moves := make([]move, n)
	list := make([]*nvme.Request, n)
	for i := range moves {
		s := &moves[i]
		blocks := rapid.IntRange(1, diskCell/bs).Draw(t, "blocks")
		lba := from[i]*(diskCell/bs) + rapid.IntRange(0, diskCell/bs-blocks).Draw(t, "block in the cell")
		off := to[i]*bufCell + 4*rapid.IntRange(0, (bufCell-blocks*bs)/4).Draw(t, "place in the cell")
		s.onDisk, s.inMem = w.disk[lba*bs:][:blocks*bs], w.mem[off:][:blocks*bs]
		s.Op = rapid.SampledFrom([]nvme.Op{nvme.OpRead, nvme.OpWrite}).Draw(t, "op")
		s.NS, s.LBA, s.Blocks, s.Buf, s.Off = w.ns, uint64(lba), uint32(blocks), w.buf, uint64(off)
		if s.Op == nvme.OpWrite {
			fill(s.inMem, uint64(rapid.Uint32().Draw(t, "seed")))
			copy(w.buf.Bytes()[off:], s.inMem)
		}
		list[i] = &s.Request
	}
	w.run(t, list, func(r *nvme.Request) {
		for i := range moves {
			if &moves[i].Request == r {
				moves[i].answers++
			}
		}
	})
	for i := range moves {
		s := &moves[i]
		if s.answers != 1 || s.Err() != nil {
			t.Fatalf("%v of %d blocks at %d completed %d times, with %v", s.Op, s.Blocks, s.LBA, s.answers, s.Err())
		}
		if s.Op == nvme.OpWrite {
			copy(s.onDisk, s.inMem)
		} else {
			copy(s.inMem, s.onDisk)
		}
	}
}

// run submits the requests, as many at a time as fit.
func (w *walk) run(t *rapid.T, list []*nvme.Request, answered func(*nvme.Request)) {
	done := make([]*nvme.Request, rapid.IntRange(1, 4).Draw(t, "taken at once"))
	for left := len(list); left > 0; {
		n, err := w.q.Submit(list...)
		list = list[n:]
		if err != nil && !errors.Is(err, nvme.ErrFull) {
			t.Fatal(err)
		}
		n, err = w.q.Reap(context.Background(), done)
		w.must(t, err)
		for _, r := range done[:n] {
			answered(r)
		}
		left -= n
	}
}

func (w *walk) zeroes(t *rapid.T) {
	bs := w.ns.BlockSize()
	n := rapid.IntRange(1, 2*diskCell/bs).Draw(t, "blocks")
	lba := rapid.IntRange(0, len(w.disk)/bs-n).Draw(t, "block")
	w.must(t, w.ns.WriteZeroes(w.ctx, uint64(lba), uint64(n)))
	clear(w.disk[lba*bs:][:n*bs])
}
