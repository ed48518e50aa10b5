package ring

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// File systems let one writer at a time into a file, so a dozen threads that
// pwrite over cached pages are no faster than one: 4 to 6 GB/s. Stores into a
// shared mapping of the same pages take no such lock, and reach 20 GB/s with
// eight. They are for pages that are there already; to make new ones pwrite is
// the better way.

// How fast a store is depends on how the cache holds the file. Large folios, which
// large writes and readahead make, cost one fault for many pages; where a fault
// is needed for every page, a mapping is no faster than pwrite and takes several
// times the processor. So the pace is watched.
const (
	// leastStore is the pace of a hand, in bytes per second, below which pwrite is
	// the better way.
	leastStore = 1_200_000_000
	// storeTurns is how many pieces that could be stored are written before one is
	// stored again, to see how it goes.
	storeTurns = 64
)

// stores are the stores into pages so far.
type stores struct {
	pace pace
	turn atomic.Uint32
}

// pay reports whether the next piece should be stored.
func (s *stores) pay() bool {
	return s.pace.get() >= leastStore || s.turn.Add(1)%storeTurns == 0
}

// mapHands is how many must be at work for a mapping to pay on tmpfs, where each
// fault costs more.
const mapHands = 8

// Overwritable reports whether stores into a mapping do what pwrites would: the
// range is part of a plain file, in the page cache, without holes that would
// need room on the disk, and nobody counts on a side effect of write.
func (kernel) Overwritable(fd int, off, n int64, hands int) bool {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG, off+n > st.Size, st.Blocks*512 < st.Size:
		return false
	case st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0: // write takes these away
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR || flags&(unix.O_APPEND|unix.O_DSYNC|unix.O_SYNC) != 0 {
		return false
	}
	return storable(fd, hands) && cached(fd, off, n)
}

// storable reports a file system that was tried.
func storable(fd, hands int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return hands >= mapHands
	}
	return false
}

// cached reports that all of a range is in the page cache.
func cached(fd int, off, n int64) bool {
	from, to := down(off, page), up(off+n, page)
	r := unix.CachestatRange{Off: uint64(from), Len: uint64(to - from)}
	var cs unix.Cachestat_t
	return unix.Cachestat(uint(fd), &r, &cs, 0) == nil && int64(cs.Cache)*page >= to-from
}

// Overwrite stores p into the file's pages at off. After an error some of it may
// be there.
func (kernel) Overwrite(fd int, p []byte, off int64) (err error) {
	from := down(off, page)
	mem, err := unix.Mmap(fd, from, int(off-from)+len(p), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(mem)) }()
	return store(mem[off-from:], p)
}

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

// overwrite writes a part by Overwrite. Where that fails pwrite is to find out
// what is wrong.
func (r *Ring) overwrite(q *Req, p *part, mem []byte) {
	began := time.Now()
	if err := r.files.Overwrite(q.Buffered, mem[p.at:p.at+p.n], q.Off+p.off); err != nil {
		p.retries++
		return
	}
	r.stores.pace.add(p.n, time.Since(began))
	p.got = p.n
}
