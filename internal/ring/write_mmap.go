package ring

import (
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/tune"
)

// mappedWrites stores large writes into a shared mapping of the file.
//
// File systems admit one writer per file at a time, so a dozen threads that pwrite
// over cached pages are no faster than one: 4 to 6 GB/s. Stores into a mapping of the
// same pages take no such lock and reach 20 GB/s with eight threads. They are for
// cached pages; new ones are made faster by pwrite.
//
// What a store costs depends on the page cache. Large folios, which large writes and
// readahead make, cost one fault for many pages, 0.10 s of processor time per GB where
// pwrite takes 0.07. If every page faults, it is 0.96 against 0.34, and 0.68 with
// MADV_POPULATE_WRITE in steps of 4 MiB, which is why nothing is populated (ext4,
// Linux 6.18, one thread, 512 MiB). So processor time is measured, and pages that
// fault one by one are written.
type mappedWrites struct {
	sys     syscalls
	log     *slog.Logger
	workers int
	slot    int64
	rate    tune.Rate // per second of processor time
	explore tune.Explorer
}

const (
	// minStoreRate is how many bytes a second of processor time must store. NVIDIA's
	// library takes 0.75 s/GB to write over cached pages on an H200 machine with small
	// folios, since its threads spin for the file's lock: 0.55 s leave room for the
	// copy.
	minStoreRate = 1_800_000_000
	// tmpfsWorkers is how many threads a mapping on tmpfs needs to be faster than
	// pwrite: each fault costs more there.
	tmpfsWorkers = 8
)

func (w *mappedWrites) init(sys syscalls, size sizing, log *slog.Logger) {
	w.sys, w.log, w.slot, w.workers = sys, log, size.slot, min(size.pipelines, size.workers)
	seed(&w.rate)
}

func (w *mappedWrites) fast() bool { return w.rate.Get(firstRate) >= minStoreRate }

// A fileMapping is the mapped range of a request.
type fileMapping struct {
	writes  *mappedWrites
	mem     []byte
	skip    int64 // bytes of the first page before the range
	explore bool  // store even if that was slow before
}

// slice is n bytes from off on; nil if they are to be written with pwrite.
func (m *fileMapping) slice(off, n int64) []byte {
	if m.mem == nil || !m.explore && !m.writes.fast() {
		return nil
	}
	return m.mem[m.skip+off : m.skip+off+n]
}

// mapFile maps what a request writes, if that is faster. One mapping serves the whole
// request: with one per chunk, threads would wait for each other in mmap, and a chunk
// that ends inside a folio would fault for each of its pages.
func (w *mappedWrites) mapFile(q *Request, p *progress) {
	if q.Direct >= 0 {
		return
	}
	explore := false
	if !w.fast() {
		if explore = w.explore.Try(q.Len); !explore {
			return
		}
	}
	if !w.sys.CanStore(q.Buffered, q.Off, q.Len, w.workers) {
		return
	}
	from := down(q.Off, page)
	mem, err := w.sys.Map(q.Buffered, from, q.Off-from+q.Len)
	if err != nil {
		w.log.Debug("ring: map the file; writing with pwrite", "error", err)
		return
	}
	p.mapped = fileMapping{w, mem, q.Off - from, explore}
}

// unmap removes the mappings of a batch.
func (w *mappedWrites) unmap(b *batch) {
	for i := range b.prog {
		p := &b.prog[i]
		if p.mapped.mem == nil {
			continue
		}
		if err := w.sys.Unmap(p.mapped.mem); err != nil {
			w.log.Warn("ring: unmap a file", "error", err)
		}
		p.mapped = fileMapping{}
	}
}

// store writes a segment into the mapping. If that fails, pwrite finds out why.
func (w *mappedWrites) store(seg *segment, mem []byte) {
	took, err := w.sys.Store(seg.mapped, mem[seg.at:seg.at+seg.n])
	if err != nil {
		seg.retries++
		return
	}
	seg.got = seg.n
	if int64(seg.n) < max(w.slot, rateLen) {
		return
	}
	before := w.fast()
	w.rate.Add(int64(seg.n), took)
	if now := w.fast(); now != before {
		w.log.Debug("ring: the faster write over cached pages has changed", "mapped", now, "bytes_per_processor_second", int64(w.rate.Get(firstRate)))
	}
}

// CanStore reports whether stores into a mapping have the effect of pwrites: the
// range is part of a regular file, in the page cache, without holes that would need
// disk space, and no flag demands more. One difference remains: inotify reports the
// change only when the file is closed.
func (kernel) CanStore(fd int, off, n int64, workers int) bool {
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
	return faultsRecoverable() && storeSupported(fd, workers) && cached(fd, off, n)
}

// privileged reports rights that a write removes from a file and a store does not:
// setuid, setgid and capabilities.
func privileged(fd int, mode uint32) bool {
	if mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return true
	}
	n, err := unix.Fgetxattr(fd, "security.capability", nil)
	return err == nil && n > 0
}

// storeSupported reports a file system on which stores were tested.
func storeSupported(fd, workers int) bool {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return false
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC:
		return true
	case unix.TMPFS_MAGIC:
		return workers >= tmpfsWorkers
	}
	return false
}

// cached reports whether all of a range is in the page cache.
func cached(fd int, off, n int64) bool {
	r, err := storage.PageCache(fd, off, n)
	return err == nil && r.Cached >= r.Pages
}

var errFault = errors.New("fault in file mapping: file truncated or disk full")

// Store copies into a mapping, and returns the processor time that this took. A fault,
// because the file was truncated or the disk is full, is an error; some of the bytes
// may be stored then.
func (kernel) Store(dst, src []byte) (took time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	if err := copyGuarded(dst, src); err != nil {
		return 0, err
	}
	return threadTime() - began, nil
}

// copyGuarded copies to or from a mapping of a file. A fault is an error.
func copyGuarded(dst, src []byte) (err error) {
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

// threadTime is the processor time of the thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // the difference is 0, and counts for nothing
	}
	return time.Duration(t.Nano())
}
