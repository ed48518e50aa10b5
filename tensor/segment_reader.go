package tensor

import (
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/object"
)

// A SegmentReader reads single tensors of a model, or contiguous parts of them, into
// memory of the caller: small ones, for which a plan takes longer than the read. It
// keeps the file that it read last open, because opening takes longer, too, and checks
// before each read that the file is still the one whose header was read. Callers may
// read concurrently.
type SegmentReader struct {
	model *Model

	mu     sync.RWMutex // held for reading while a read uses the open file
	file   int          // of the model, that is open
	open   stored       // nil: none is
	closed bool
}

// NewSegmentReader returns a reader of an open model. It opens no file yet.
func NewSegmentReader(m *Model) *SegmentReader { return &SegmentReader{model: m} }

// Read fills to with the bytes of tensor i of the model from off on.
func (r *SegmentReader) Read(i int, off int64, to []byte) error {
	if i < 0 || i >= len(r.model.Tensors) {
		return fmt.Errorf("tensor %d of %d", i, len(r.model.Tensors))
	}
	info := &r.model.Tensors[i]
	if n := int64(len(to)); off < 0 || off > info.Len-n {
		return fmt.Errorf("tensor %q: bytes %d+%d of %d", info.Name, off, n, info.Len)
	}
	if err := r.acquire(info.File); err != nil {
		return err
	}
	defer r.mu.RUnlock()
	if err := r.model.Files[info.File].check(); err != nil {
		return fmt.Errorf("loading %s: %w", info.Name, err)
	}
	if err := readFull(r.open, to, info.Off+off); err != nil {
		return fmt.Errorf("loading %s: %s: %w", info.Name, object.Redact(r.open.Name()), err)
	}
	return nil
}

// acquire opens a file if another one is open, and returns with the lock held for
// reading.
func (r *SegmentReader) acquire(file int) error {
	for {
		r.mu.RLock()
		if r.open != nil && r.file == file {
			return nil
		}
		r.mu.RUnlock()
		if err := r.exchange(file); err != nil {
			return err
		}
	}
}

// exchange closes the open file, and opens another one.
func (r *SegmentReader) exchange(file int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("%s: %w", object.Redact(r.model.Path), fs.ErrClosed)
	}
	if r.open != nil && r.file == file {
		return nil // another read was faster
	}
	f, err := openStored(r.model.Files[file].Path)
	if err != nil {
		return err
	}
	if r.open != nil {
		err = r.open.Close()
	}
	r.file, r.open = file, f
	return err
}

// Close waits for the reads that are running, and closes the open file.
func (r *SegmentReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.open == nil {
		return nil
	}
	f := r.open
	r.open = nil
	return f.Close()
}

// SegmentReport describes a read of n bytes of a file by a SegmentReader.
func SegmentReport(path string, n int64, took time.Duration) FileReport {
	rec := hostReceipt(n, took)
	rec.Cache.Unasked = n
	return FileReport{Path: object.Redact(path), Receipt: rec}
}
