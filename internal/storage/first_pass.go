package storage

import (
	"sync"
	"sync/atomic"
)

// A firstPass knows which parts of a file have gone around the page cache, for all opens
// of the file in this process. It is over when one of them is read again: eight readers
// of the same blocks would read each from the disk eight times.
type firstPass struct {
	ended atomic.Bool // every read asks

	mu    sync.Mutex
	cells []uint64 // a bit for each cell whose first byte has gone around

	opens int // guarded by passesMu
}

const passCell = 1 << 20

// over reports that the pass has ended.
func (p *firstPass) over() bool { return p != nil && p.ended.Load() }

// around notes that [off, off+n) goes around the cache. If a part of it has done so
// before, the pass has ended.
func (p *firstPass) around(off, n int64) {
	if p == nil || p.over() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, last := cellsOf(off, n); i < last; i++ {
		if more := i/64 + 1 - int64(len(p.cells)); more > 0 {
			p.cells = append(p.cells, make([]uint64, more)...)
		}
		if bit := uint64(1) << (i % 64); p.cells[i/64]&bit == 0 {
			p.cells[i/64] |= bit
		} else {
			p.ended.Store(true)
		}
	}
}

// cellsOf returns the cells whose first bytes are in [off, off+n): so parts that do not
// overlap have no cell in common.
func cellsOf(off, n int64) (first, last int64) {
	return (off + passCell - 1) / passCell, (off + n + passCell - 1) / passCell
}

type fileID struct {
	dev   string
	inode uint64
}

var (
	passesMu sync.Mutex
	passes   = map[fileID]*firstPass{}
)

// openPass returns the pass of a file, which all its opens share until closePass.
func openPass(id fileID) *firstPass {
	passesMu.Lock()
	defer passesMu.Unlock()
	p := passes[id]
	if p == nil {
		p = new(firstPass)
		passes[id] = p
	}
	p.opens++
	return p
}

func closePass(id fileID, p *firstPass) {
	passesMu.Lock()
	defer passesMu.Unlock()
	if p == nil {
		return
	}
	if p.opens--; p.opens == 0 {
		delete(passes, id)
	}
}
