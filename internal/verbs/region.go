package verbs

import (
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/rdma"
)

// A Backing is registered memory as the device reaches it.
type Backing interface {
	// Acquire appends the n bytes from off to segs, for the device to write or to read.
	// The range is inside the memory. Unless it is nil, the Hold is released after the
	// move. An error means that the memory is gone.
	Acquire(segs [][]byte, off uint64, n int, write bool) ([][]byte, Hold, error)
	// Close is called once, when no access is in flight.
	Close() error
}

// A Hold is memory in use.
type Hold interface {
	// Release ends the use and tells how many bytes were moved.
	Release(moved int) error
}

// A Region is registered memory: an rdma.MR.
type Region struct {
	pd     *PD
	key    uint32
	addr   uint64
	len    uint64
	access rdma.Access

	mu      sync.RWMutex // held for reading during an access
	gone    bool
	closed  bool
	backing Backing
}

// LKey, RKey, Addr and Len implement rdma.MR.
func (r *Region) LKey() uint32 { return r.key }

// RKey is the key for the peer. It is random.
func (r *Region) RKey() uint32 { return r.key }

// Addr is the address of the first byte.
func (r *Region) Addr() uint64 { return r.addr }

// Len is the number of bytes.
func (r *Region) Len() uint64 { return r.len }

// Access is what may be done with the region.
func (r *Region) Access() rdma.Access { return r.access }

// Revoke ends all access. When it returns no byte of the memory moves any more, and the
// key gives errors. The region must still be closed.
func (r *Region) Revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
}

// Close deregisters.
func (r *Region) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return syscall.EINVAL
	}
	r.gone, r.closed = true, true
	r.mu.Unlock()
	r.pd.forget(r)
	return r.backing.Close()
}

// at returns the offset of n bytes from addr if the region has them and the right.
func (r *Region) at(addr, n uint64, need rdma.Access) (off uint64, ok bool) {
	off = addr - r.addr
	return off, addr >= r.addr && off <= r.len && n <= r.len-off && r.access&need == need
}

// A piece is a part of a region, or bytes of the device.
type piece struct {
	r     *Region
	off   uint64
	n     uint64
	bytes []byte
}

// A list is memory of one message, moved from its start to its end.
type list struct {
	pieces []piece
	left   uint64

	segs  [][]byte // scratch
	holds []held
}

type held struct {
	r *Region
	h Hold
	n int
}

func (l *list) reset() {
	clear(l.pieces)
	l.pieces, l.left = l.pieces[:0], 0
}

func (l *list) add(p piece) {
	if p.n != 0 {
		l.pieces = append(l.pieces, p)
		l.left += p.n
	}
}

// move acquires memory of the list, at most limit bytes, calls f with it, and drops as
// many bytes as f returns. head, if not empty, is put first and is not counted here: f
// returns the bytes moved without it.
func (l *list) move(write bool, limit int, head []byte, f func(segs [][]byte) (int, error)) (n int, err error) {
	l.segs = l.segs[:0]
	if len(head) > 0 {
		l.segs = append(l.segs, head)
	}
	for _, p := range l.pieces {
		k := min(int(p.n), limit)
		if k == 0 {
			break
		}
		if err = l.acquire(p, k, write); err != nil {
			break
		}
		limit -= k
	}
	if err == nil {
		n, err = f(l.segs)
	}
	l.release(n)
	l.drop(uint64(n))
	clear(l.segs)
	return n, err
}

func (l *list) acquire(p piece, n int, write bool) error {
	if p.r == nil {
		l.segs = append(l.segs, p.bytes[:n])
		return nil
	}
	p.r.mu.RLock()
	if p.r.gone {
		p.r.mu.RUnlock()
		return errGone
	}
	segs, h, err := p.r.backing.Acquire(l.segs, p.off, n, write)
	if err != nil {
		p.r.mu.RUnlock()
		return errGone
	}
	l.segs = segs
	l.holds = append(l.holds, held{p.r, h, n})
	return nil
}

func (l *list) release(moved int) {
	for _, h := range l.holds {
		k := min(moved, h.n)
		if h.h != nil {
			_ = h.h.Release(k) // a device that was unplugged fails the next acquire
		}
		h.r.mu.RUnlock()
		moved -= k
	}
	clear(l.holds)
	l.holds = l.holds[:0]
}

func (l *list) drop(n uint64) {
	l.left -= n
	for n > 0 {
		p := &l.pieces[0]
		k := min(n, p.n)
		p.off, p.n, n = p.off+k, p.n-k, n-k
		if p.r == nil {
			p.bytes = p.bytes[k:]
		}
		if p.n == 0 {
			copy(l.pieces, l.pieces[1:])
			l.pieces = l.pieces[:len(l.pieces)-1]
		}
	}
}
