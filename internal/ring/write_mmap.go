package ring

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// File systems let one writer at a time into a file, so a dozen threads that
// pwrite over cached pages are no faster than one: 4 to 6 GB/s. Stores into a
// shared mapping of the same pages take no such lock, and reach 20 GB/s with
// eight. They are for pages that are there already; to make new ones pwrite is
// the better way.

// How fast a store is depends on how the cache holds the file. Large folios, which
// large writes and readahead make, cost one fault for many pages; where a fault
// is needed for every page, a mapping is hardly faster than pwrite and takes
// several times the processor. So the pace is watched.
const (
	// leastStore is the pace of a hand, in bytes per second, below which pwrite is
	// the better way.
	minStoreRate = 800_000_000
	// storeTurns is how many pieces that could be stored are written before one is
	// stored again, to see how it goes.
	storeRetry = 64
)

// stores are the stores into pages so far.
type storeRate struct {
	rate    rate
	skipped atomic.Uint32
}

// pay reports whether the next piece should be stored.
func (s *storeRate) pay() bool {
	return s.rate.get() >= minStoreRate || s.skipped.Add(1)%storeRetry == 0
}

// mapHands is how many must be at work for a mapping to pay on tmpfs, where each
// fault costs more.
const tmpfsStoreWorkers = 8

// Overwritable reports whether stores into a mapping do what pwrites would: the
// range is part of a plain file, in the page cache, without holes that would
// need room on the disk, and no flag asks for more. One difference stays: who
// watches the file by inotify hears of it when it is closed, not before.
func (kernel) CanStore(fd int, off, n int64, hands int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG, off+n > st.Size, st.Blocks*512 < st.Size:
		return false
	case privileged(fd, st.Mode):
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&(unix.O_APPEND|unix.O_DSYNC|unix.O_SYNC) != 0 {
		return false
	}
	return faultsRecoverable() && storeSupported(fd, hands) && cached(fd, off, n)
}

// privileged reports rights that a write takes from a file, and a store does not:
// setuid, setgid and capabilities.
func privileged(fd int, mode uint32) bool {
	if mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return true
	}
	n, err := unix.Fgetxattr(fd, "security.capability", nil)
	return err == nil && n > 0
}

// storable reports a file system that was tried.
func storeSupported(fd, hands int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return hands >= tmpfsStoreWorkers
	}
	return false
}

// cached reports whether all of a range is in the page cache.
func cached(fd int, off, n int64) bool {
	r, err := storage.PageCache(fd, off, n)
	return err == nil && r.Cached >= r.Pages
}

// pages are a shared mapping of a range of a file.
type mappedPages struct {
	mem  []byte
	skip int // bytes of the first page before the range
}

// part is n bytes from off on, or nil where nothing is mapped.
func (p mappedPages) slice(off, n int64) []byte {
	if p.mem == nil {
		return nil
	}
	return p.mem[int64(p.skip)+off : int64(p.skip)+off+n]
}

// Pages maps a range. One mapping serves a whole request: to make one for each
// piece would have the hands wait for each other, and pieces that end inside a
// folio would take a fault for each of its pages.
func (kernel) Map(fd int, off, n int64) (mappedPages, error) {
	from := down(off, page)
	mem, err := unix.Mmap(fd, from, int(off-from+n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mappedPages{}, fmt.Errorf("mmap: %w", err)
	}
	return mappedPages{mem, int(off - from)}, nil
}

// Release unmaps them.
func (kernel) Unmap(p mappedPages) error { return unix.Munmap(p.mem) }

// Store copies into pages. After an error some of it may be there.
func (kernel) Store(dst, src []byte) error { return store(dst, src) }

var errFault = errors.New("the pages went away")

// store copies, and turns the fault into an error that comes when the file is cut
// short meanwhile or the disk has no room.
func store(dst, src []byte) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = errFault
		default:
			panic(r)
		}
	}()
	copy(dst, src)
	return nil
}

// overwrite stores a part. Where that fails pwrite is to find out what is wrong.
func (r *Ring) store(p *segment, mem []byte) {
	began := time.Now()
	if err := r.files.Store(p.mapped, mem[p.at:p.at+p.n]); err != nil {
		p.retries++
		return
	}
	if int64(p.n) == r.sizing.slot {
		r.storeRate.rate.add(p.n, time.Since(began))
	}
	p.got = p.n
}

// mapPages maps what a request writes, if that is the better way to write it.
func (r *Ring) mapFile(q *Request, p *progress) {
	hands := min(r.sizing.pipelines, r.sizing.workers)
	if q.Direct >= 0 || !r.storeRate.pay() || !r.files.CanStore(q.Buffered, q.Off, q.Len, hands) {
		return
	}
	over, err := r.files.Map(q.Buffered, q.Off, q.Len)
	if err != nil {
		r.log.Debug("ring: pages are written, not stored into", "error", err)
		return
	}
	p.mapped = over
}

// releasePages unmaps what was mapped for an op.
func (r *Ring) unmapFiles(o *batch) {
	for i := range o.prog {
		p := &o.prog[i]
		if p.mapped.mem == nil {
			continue
		}
		if err := r.files.Unmap(p.mapped); err != nil {
			r.log.Warn("ring: unmap the pages of a file", "error", err)
		}
		p.mapped = mappedPages{}
	}
}
