package ladder

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/storage"
)

// A witness is what the host itself sees of a source: what a direct route must agree with.
type witness interface {
	size() (int64, error)
	// sample reads a small range if that costs next to nothing.
	sample(b []byte, off int64) bool
	// read reads a range as the host sees it.
	read(b []byte, off int64) error
	// readBack reads a range past caches. block is aligned memory for a small range, or nil.
	readBack(b []byte, off int64, block []byte) error
	// readTogether reads blocks of 4 KiB past caches, all in flight together. p is aligned.
	readTogether(p []byte, offs []int64) error
	// readable reports whether readBack can work.
	readable() bool
	// dated reports whether changedAfter finds every change.
	dated() bool
	// changedAfter reports whether the source may have been changed after a time.
	changedAfter(time.Time) bool
	// undo puts back what a write has overwritten.
	undo(*saved) error
}

// A fileWitness reads a file through the page cache if the range is there, and past it
// otherwise: a sample must not fill the cache.
type fileWitness struct {
	f *storage.File
	// warm says that the last sample was in the page cache.
	warm atomic.Bool
	// back is a descriptor to read what was written; -1 if there is none.
	back func() int
}

func (w *fileWitness) size() (int64, error)           { return w.f.Size() }
func (w *fileWitness) read(b []byte, off int64) error { return readHost(w.f, w.back(), b, off) }
func (w *fileWitness) readable() bool                 { return w.back() >= 0 }

// dated: a host learns of changes that others make to their files seconds later.
func (w *fileWitness) dated() bool {
	return !w.f.Facts.Block && !blockstack.IsNetwork(w.f.Facts.FS)
}

func (w *fileWitness) changedAfter(t time.Time) bool {
	return !w.f.Facts.Block && changedAfter(w.f, t)
}

func (w *fileWitness) readBack(b []byte, off int64, block []byte) error {
	if w.back() < 0 {
		return errNoReadBack
	}
	return readDrive(w.f, w.back(), b, off, block)
}

func (w *fileWitness) readTogether(p []byte, offs []int64) error {
	fd := w.back()
	if fd < 0 {
		return errNoReadBack
	}
	if submitTogether(fd, p, offs) == nil {
		return nil
	}
	return preadTogether(fd, p, offs)
}

// sample does not ask whether a page is cached where the last one was: files are mostly
// in the page cache, or mostly not.
func (w *fileWitness) sample(b []byte, off int64) bool {
	if w.warm.Load() && w.f.Readable() && preadCached(w.f.Buffered(), b, off) == len(b) {
		return true
	}
	ok := readCached(w.f, b, off)
	w.warm.Store(ok)
	return ok
}

func (w *fileWitness) undo(s *saved) (err error) {
	if len(s.data) > 0 {
		_, err = pwriteFull(w.f, s.data, s.off)
	}
	if size, serr := w.f.Size(); serr == nil && !w.f.Facts.Block && size > s.size && size <= s.end {
		err = errors.Join(err, unix.Ftruncate(w.f.FD(), s.size))
	}
	return err
}

// A sourceWitness reads a DirectSource through host memory: the same drive or adapter, and
// another way from there.
type sourceWitness struct{ DirectSource }

func (w sourceWitness) size() (int64, error)      { return w.Size() }
func (w sourceWitness) sample([]byte, int64) bool { return false } // each is a command
func (w sourceWitness) readable() bool            { return true }

func (w sourceWitness) read(b []byte, off int64) error {
	n, err := w.ReadAt(b, off)
	if err == io.EOF && n < len(b) {
		return io.ErrUnexpectedEOF
	}
	if n == len(b) {
		return nil
	}
	return err
}

func (w sourceWitness) readBack(b []byte, off int64, _ []byte) error { return w.read(b, off) }

func (w sourceWitness) readTogether(p []byte, offs []int64) (err error) {
	for k, off := range offs {
		err = errors.Join(err, w.read(p[k*placeBlock:][:placeBlock], off))
	}
	return err
}

// A changer is a source that can be asked whether it has changed; drives cannot.
type changer interface{ Changed() bool }

func (w sourceWitness) dated() bool {
	_, ok := w.DirectSource.(changer)
	return ok
}

// changedAfter knows only whether there was a change.
func (w sourceWitness) changedAfter(time.Time) bool {
	c, ok := w.DirectSource.(changer)
	return ok && c.Changed()
}

func (w sourceWitness) undo(s *saved) error {
	_, err := w.WriteAt(s.data, s.off)
	return err
}
