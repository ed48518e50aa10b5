package stats

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// The states of a slot.
const (
	free uint32 = iota
	open
	closed
)

// others is the slot for files without one of their own: those whose slots were
// reused, and those that found none.
const others = 0

// A Process is the segment of this process. It is safe for concurrent use.
type Process struct {
	id  int
	mem []byte   // of the segment
	seg *segment // nil if there is none
	err error    // why there is none

	mu     sync.Mutex
	used   int           // slots that have had a file, and others
	closed []int         // slots of closed files, the oldest first
	names  [slots]string // of the slots' files; the segment has the beginning of a long one
}

// Err says why the process has no segment, or is nil.
func (p *Process) Err() error { return p.err }

// New makes the segment of this process. If the kernel does not allow it, the totals
// stay in this process. routes are the names by number.
func New(routes []string) *Process {
	sweep(entries(), time.Now())
	p := &Process{used: others + 1}
	if p.id, p.mem, p.err = create(); p.err != nil {
		return p
	}
	p.seg = at(p.mem)
	h := &p.seg.Header
	h.Version, h.Slots, h.Started = layoutVersion, slots, time.Now().UnixNano()
	for i, name := range routes[:min(len(routes), Routes)] {
		copy(h.RouteNames[i][:len(h.RouteNames[i])-1], name)
	}
	put(h.Command[:], strings.Join(os.Args, " "))
	p.seg.Slots[others].State.Store(open)
	h.Magic = magic // last: it says that the rest is valid
	return p
}

// put writes a text, truncated if it does not fit.
func put(to []byte, text string) {
	clear(to)
	copy(to[:len(to)-1], text)
}

// A File counts the transfers of one file.
type File struct {
	block  *Block
	more   *Block // counts the same transfers if the file has no slot
	slot   int
	before *Totals // what the slot had from the last time; nil if nothing
}

// Attach gives a file a slot: its last one, if no other file had that since. Programs open
// one file again and again, and would take the slots of all others. If there is none, its
// transfers are counted among the others.
func (p *Process) Attach(name string) *File {
	if p.seg == nil {
		return &File{block: new(Block)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := p.again(name); i != others {
		s := &p.seg.Slots[i]
		before := s.Block.Totals()
		s.State.Store(open)
		return &File{block: &s.Block, slot: i, before: &before}
	}
	i := p.take()
	if i == others {
		return &File{block: new(Block), more: &p.seg.Slots[others].Block}
	}
	s := &p.seg.Slots[i]
	p.seg.Header.Changes.Add(1)
	if s.State.Load() == closed {
		s.Block.moveTo(&p.seg.Slots[others].Block)
	}
	p.names[i] = name
	put(s.Name[:], name)
	s.GPU, s.Ceiling = 0, 0
	put(s.Declined[:], "")
	s.State.Store(open)
	p.seg.Header.Changes.Add(1)
	return &File{block: &s.Block, slot: i}
}

// again returns the slot of a closed file of this name, or others.
func (p *Process) again(name string) int {
	for k, i := range p.closed {
		if p.names[i] == name {
			p.closed = slices.Delete(p.closed, k, k+1)
			return i
		}
	}
	return others
}

// take finds a slot: an unused one, or that of the file that was closed first. Unused
// slots follow the used ones: readers stop at the first of them.
func (p *Process) take() int {
	if p.used < slots {
		p.used++
		return p.used - 1
	}
	if len(p.closed) == 0 {
		return others
	}
	i := p.closed[0]
	p.closed = p.closed[1:]
	return i
}

// Detach ends a file, to which no transfer may be added any more, and returns its
// totals. Its slot keeps them until another file needs it.
func (p *Process) Detach(f *File) Totals {
	t := f.Totals()
	if f.slot == others {
		return t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seg.Slots[f.slot].State.Store(closed)
	p.closed = append(p.closed, f.slot)
	return t
}

// A Description is what a reader may want to know of a file's transfers.
type Description struct {
	GPU      int     // its number
	Ceiling  float64 // the pinned-copy rate in bytes per second; 0 if unknown
	Declined string  // one line per route that was declined
}

// Describe replaces the description of a file.
func (p *Process) Describe(f *File, d Description) {
	if f.slot == others {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.seg.Slots[f.slot]
	p.seg.Header.Changes.Add(1)
	s.GPU, s.Ceiling = uint32(d.GPU+1), uint64(d.Ceiling)
	put(s.Declined[:], d.Declined)
	p.seg.Header.Changes.Add(1)
}

// Add counts a transfer in a shard.
func (f *File) Add(shard uint32, t *Transfer) {
	f.block.Add(shard, t)
	if f.more != nil {
		f.more.Add(shard, t)
	}
}

// AddBytes counts bytes of a transfer that another route moved than most of them.
func (f *File) AddBytes(shard uint32, write bool, route int, n int64) {
	f.block.AddBytes(shard, write, route, n)
	if f.more != nil {
		f.more.AddBytes(shard, write, route, n)
	}
}

// Totals are the sums of the file's transfers since it was attached.
func (f *File) Totals() Totals {
	t := f.block.Totals()
	if f.before != nil {
		t.Subtract(f.before)
	}
	return t
}
