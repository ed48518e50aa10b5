package ladder

import (
	"encoding/binary"
	"errors"
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/wc"
)

// A view reads and writes few bytes of an op's memory: through a mapping if there is
// one, otherwise by copies of the GPU, each of which costs some microseconds.
type view struct {
	copies *copier
	op     *Op
	mapped []byte // the op's memory, or nil
}

// view finds the fastest access to the memory of an op. CPU loads through BAR1 are
// slow, so what reads much uses only a route's own mapping.
func (v *prover) view(r Route, op *Op, much bool) view {
	w := view{copies: &v.copies, op: op}
	b := r.Mapping(op.Mem.Base)
	for i := 0; b == nil && !much && i < len(v.maps); i++ {
		b = v.maps[i].Mapping(op.Mem.Base)
	}
	if uint64(len(b)) >= op.Mem.Off+op.Mem.Len {
		w.mapped = b[op.Mem.Off : op.Mem.Off+op.Mem.Len]
	}
	return w
}

// store puts bytes at an offset of the op's memory.
func (w *view) store(off uint64, b []byte) (err error) {
	if w.mapped == nil {
		return w.copies.in(w.op, w.op.Mem.Addr()+gpu.Addr(off), b)
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Store(w.mapped[off:], b)
	return nil
}

// load reads bytes at an offset of the op's memory.
func (w *view) load(b []byte, off uint64) (err error) {
	if w.mapped == nil {
		return w.copies.out(w.op, b, w.op.Mem.Addr()+gpu.Addr(off))
	}
	defer wc.Guard(wc.Arm(), &err)
	wc.Load(b, w.mapped[off:])
	return nil
}

// putSentinel puts a word into the op's memory at the place of each step.
func (w *view) putSentinel(word uint64, st *steps) (err error) {
	defer wc.Guard(wc.Arm(), &err) // one for all of them: it costs more than a store
	var room [maxSentinels]int64
	places := st.places(&room) // computed before: stores then miss caches at the same time
	if w.mapped != nil {
		for _, at := range places {
			binary.LittleEndian.PutUint64(w.mapped[at-w.op.Off:], word)
		}
		return nil
	}
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 8), word)
	for _, at := range places {
		if err := w.copies.in(w.op, w.op.Mem.Addr()+gpu.Addr(at-w.op.Off), b); err != nil {
			return err
		}
	}
	return nil
}

// beginLoads is before loadNext and words: what is loaded is no older than this.
func (w *view) beginLoads() {
	if w.mapped != nil {
		wc.LoadBarrier()
	}
}

// loadNext is load for many small ranges, inside one guard of the caller.
func (w *view) loadNext(b []byte, off uint64) error {
	if w.mapped == nil {
		return w.copies.out(w.op, b, w.op.Mem.Addr()+gpu.Addr(off))
	}
	wc.LoadNext(b, w.mapped[off:])
	return nil
}

// words loads the word at each place of the file.
func (w *view) words(words []uint64, places []int64) error {
	if w.mapped != nil {
		for k, at := range places { // nothing else: loads then miss caches at the same time
			words[k] = wc.LoadWord(w.mapped[at-w.op.Off:])
		}
		return nil
	}
	b := make([]byte, 8)
	for k, at := range places {
		if err := w.copies.out(w.op, b, w.op.Mem.Addr()+gpu.Addr(at-w.op.Off)); err != nil {
			return err
		}
		words[k] = binary.LittleEndian.Uint64(b)
	}
	return nil
}

// readCached reads a range of a file if it is in the page cache.
func readCached(f *storage.File, b []byte, off int64) bool {
	if f.Buffered() < 0 || !f.Readable() {
		return false
	}
	// A read that does not wait still starts to read ahead, which would fill the cache.
	if r, err := storage.PageCache(f.Buffered(), off, int64(len(b))); err == nil && r.Cached < r.Pages {
		return false
	}
	return preadCached(f.Buffered(), b, off) == len(b)
}

// readHost reads a range of a file as the host sees it, past the page cache if the
// range is not there: a sample must not fill the cache. fd has O_DIRECT, or is -1.
func readHost(f *storage.File, fd int, b []byte, off int64) error {
	if readCached(f, b, off) {
		return nil
	}
	if fd >= 0 {
		return readDrive(f, fd, b, off, nil)
	}
	n, err := preadFull(f, b, off)
	if err == nil && n < len(b) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// readDrive reads a range of a file past the page cache. block is aligned memory for a
// small range; without it, some is allocated.
func readDrive(f *storage.File, fd int, b []byte, off int64, block []byte) error {
	unit := directUnit(f)
	start := off / unit * unit
	n := int((off + int64(len(b)) - start + unit - 1) / unit * unit)
	if n > len(block) {
		block = alignedBytes(n, hostPage)
	}
	var retries int
	k, err := moveAll(unix.Pread, fd, block[:n], start, unit, &retries)
	if err == nil && k < off-start+int64(len(b)) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		copy(b, block[off-start:])
	}
	return err
}

// errNoReadBack: a file that was opened only for writing and cannot be opened again.
var errNoReadBack = errors.New("the file cannot be opened for reading")

func reopenToRead(f *storage.File) int {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(f.FD()), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func closeIfOpen(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
