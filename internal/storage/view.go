package storage

import (
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A view is the whole file mapped for reading. Copying out of it saves a small
// read its system call, but a page that is not in memory would stop the thread,
// and with it everything that waits for that thread's turn. So it is used where
// the page cache was seen to hold the file not long ago.
type view struct {
	mem   []byte
	looks []atomic.Int64 // by chunk: when it was looked at, negative when some of it was missing
}

const (
	// viewAfter is how many small reads a file sees before it is mapped.
	viewAfter = 64
	// viewChunk is how much is looked at together.
	viewChunk = 16 << 20
	// viewTrust is how long a look is relied upon.
	viewTrust = 250 * time.Millisecond
)

// View is n bytes of the file at off, straight out of the page cache, or nil
// where they may not be there or do not lie in whole pages of the file. now
// counts from any fixed moment.
//
// The memory belongs to the file until it is closed. Touching it faults when the
// file has been cut short; and a file that has been cut shows zeros up to the
// end of its last page. A user therefore asks Holds after copying.
func (f *File) View(off, n int64, now time.Duration) []byte {
	v := f.view.Load()
	if v == nil {
		if f.views.Load() > viewAfter || f.views.Add(1) != viewAfter {
			return nil
		}
		if v = f.newView(); v == nil {
			return nil
		}
	}
	if off < 0 || n <= 0 || off > int64(len(v.mem))-n {
		return nil
	}
	for chunk := off / viewChunk; chunk <= (off+n-1)/viewChunk; chunk++ {
		if !f.seen(v, chunk, now) {
			return nil
		}
	}
	return v.mem[off : off+n]
}

// newView maps the whole pages of the file.
func (f *File) newView() *view {
	size, err := f.Size()
	size -= size % int64(os.Getpagesize())
	if err != nil || size == 0 || f.buffered < 0 || !f.Readable() || f.Facts.Block {
		return nil
	}
	mem, err := unix.Mmap(f.buffered, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	v := &view{mem: mem, looks: make([]atomic.Int64, (size+viewChunk-1)/viewChunk)}
	f.OnClose(func() { unix.Munmap(mem) })
	f.view.Store(v)
	return v
}

// seen reports whether the page cache holds a chunk, or held it a moment ago.
func (f *File) seen(v *view, chunk int64, now time.Duration) bool {
	at := &v.looks[chunk]
	last := time.Duration(at.Load())
	if last != 0 && now-max(last, -last) < viewTrust {
		return last > 0
	}
	start := chunk * viewChunk
	n := min(viewChunk, int64(len(v.mem))-start)
	held, err := f.Resident(start, n)
	whole := err == nil && held >= n
	stamp := int64(max(now, 1))
	if !whole {
		stamp = -stamp
	}
	at.Store(stamp)
	return whole
}
