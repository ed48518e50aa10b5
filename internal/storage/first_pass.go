package storage

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A firstPass knows which parts of a file have gone around the page cache, for all opens
// of the file in this process, also one after the other. It is over when one of them is
// read again: eight readers of the same blocks would read each from the disk eight times,
// and a model that is loaded again and again would never be in the cache.
type firstPass struct {
	ended  atomic.Bool // every read asks
	before cacheBefore

	mu    sync.Mutex
	cells []uint64 // a bit for each cell whose first byte has gone around

	// Guarded by passesMu.
	opens  int
	closed int64 // when the last open was closed, as a number of passes
}

const (
	passCell = 1 << 20
	// passesKept is how many passes of closed files are remembered.
	passesKept = 256
)

// over reports that the pass has ended.
func (p *firstPass) over() bool { return p != nil && p.ended.Load() }

// around notes that [off, off+n) goes around the cache. If a part of it has done so
// before, the pass has ended.
func (p *firstPass) around(off, n int64) {
	if p == nil {
		return
	}
	p.before.passed(off, n)
	if p.over() {
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
			p.end()
		}
	}
}

// cellsOf returns the cells whose first bytes are in [off, off+n): so parts that do not
// overlap have no cell in common.
func cellsOf(off, n int64) (first, last int64) {
	return (off + passCell - 1) / passCell, (off + n + passCell - 1) / passCell
}

// aheadOnly reports whether [off, off+n) has bytes that the cache lacked before this pass and
// that were not read in it yet. If they are cached now, the kernel has read ahead.
func (p *firstPass) aheadOnly(off, n int64) bool { return p != nil && p.before.inFront(off, n) }

// end ends the pass: something shows that the file was read before.
func (p *firstPass) end() {
	if p != nil {
		p.ended.Store(true)
	}
}

// began reports that the pass has something to remember.
func (p *firstPass) began() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.cells) > 0
}

type fileID struct {
	dev   string
	inode uint64
}

var (
	passesMu     sync.Mutex
	passes       = map[fileID]*firstPass{}
	passesClosed int64
)

// openPass returns the pass of a file, which all its opens share.
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

// closePass ends one open of a file. A pass in which something went around the cache is
// remembered, until passesKept others have been closed.
func closePass(id fileID, p *firstPass) {
	passesMu.Lock()
	defer passesMu.Unlock()
	if p == nil {
		return
	}
	if p.opens--; p.opens > 0 {
		return
	}
	if !p.began() {
		delete(passes, id)
		return
	}
	p.before.parts = nil // others may fill or drop the cache meanwhile
	p.before.used.Store(false)
	passesClosed++
	p.closed = passesClosed
	maps.DeleteFunc(passes, func(_ fileID, p *firstPass) bool { return p.opens == 0 && p.closed <= passesClosed-passesKept })
}
