package ladder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// writeProofSize is what a write of a stack is proved with: a page of the GPU.
const writeProofSize = 64 << 10

// proveWrites proves, once for a block stack, that writes of a route take their bytes
// from the GPU. A read that moved is no proof: RAID 5 computes parity in host memory.
// The proof writes to a file of its own beside the op's, which has no name; where
// there can be none (a block device), to the op's own range, and restores it.
func (v *prover) proveWrites(ctx context.Context, r Route, t *Traits, op *Op) error {
	k := v.known(t.ID, route.Write, op.file())
	if k.proved.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proved.Load() {
		return nil
	}
	own, err := besideOf(op)
	var found *mismatch
	if err == nil {
		found, err = v.tryBeside(ctx, r, op, own)
	} else if found, err = v.tryInPlace(ctx, r, op); err != nil && !isRejected(err) {
		return err // of the op itself
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case isRejected(err):
		return &RejectedError{v.condemn(t.ID, op, err.Error()), errNotArrived}
	case err != nil:
		d := decline(t.ID, "proof", "no proof that writes arrive: "+err.Error(), "")
		op.passed = append(op.passed, d)
		return &RejectedError{d, err}
	case found != nil:
		return &RejectedError{v.condemn(t.ID, op, found.String()+" after a write"), errNotArrived}
	}
	k.proved.Store(true)
	return nil
}

// tryBeside writes to a file of our own.
func (v *prover) tryBeside(ctx context.Context, r Route, op *Op, f *storage.File) (*mismatch, error) {
	defer f.Close()
	if _, d := r.Traits(FileSource(f)); d != nil {
		return nil, &RejectedError{d, unix.EOPNOTSUPP}
	}
	a, err := v.dev.Alloc(gpu.KindDevice, writeProofSize, 0)
	if err != nil {
		return nil, err
	}
	defer v.dev.Free(a)
	span := gpu.Span{Dev: op.Mem.Dev, Base: a, Len: writeProofSize}
	r.Register(span, gpu.KindDevice)
	defer r.Deregister(span)
	o := []Op{{Dir: route.Write, Src: FileSource(f), Mem: span, Kind: gpu.KindDevice, Buf: unfreed{}, strict: true}}
	return v.writeAndCompare(ctx, r, o, v.randomBytes())
}

// tryInPlace writes the first blocks of the op itself.
func (v *prover) tryInPlace(ctx context.Context, r Route, op *Op) (found *mismatch, err error) {
	if v.file(op.file()).back() < 0 {
		return nil, errNoReadBack
	}
	o := *op
	o.strict = true
	o.Mem = op.Mem.Slice(0, min(op.Mem.Len, writeProofSize))
	before, err := v.save(op.file(), o.Off, o.end())
	if err != nil {
		return nil, err
	}
	found, err = v.writeAndCompare(ctx, r, []Op{o}, nil)
	if found != nil || isRejected(err) {
		err = errors.Join(err, before.restore(op.file()))
	}
	return found, err
}

// writeAndCompare writes an op and reads all of it back. With data, that is put into
// the op's memory first.
func (v *prover) writeAndCompare(ctx context.Context, r Route, op []Op, data []byte) (*mismatch, error) {
	o, mem := &op[0], v.view(r, &op[0], true)
	if data != nil {
		if err := mem.store(0, data); err != nil {
			return nil, err
		}
	} else {
		data = make([]byte, o.Mem.Len)
		if err := mem.load(data, 0); err != nil {
			return nil, err
		}
	}
	res := make([]route.Receipt, 1)
	if err := r.Run(ctx, op, res); err != nil {
		return nil, err
	}
	if res[0].Bytes != int64(len(data)) {
		return nil, fmt.Errorf("wrote %d bytes of %d", res[0].Bytes, len(data))
	}
	return v.equalBack(o.file(), data, o.Off)
}

func (v *prover) randomBytes() []byte {
	s := v.pool.Get().(*samples)
	defer v.pool.Put(s)
	b := make([]byte, writeProofSize)
	s.rand.Read(b)
	return b
}

// besideOf makes a file without a name in the directory of another one. It has blocks,
// so that the proof writes to blocks as the op does. An op in a stream has none: to
// free the memory of the proof would wait for the stream, which waits for the op.
func besideOf(op *Op) (*storage.File, error) {
	f := op.file()
	if f.Facts.Block || op.InStream {
		return nil, storage.ErrFileType
	}
	fd, err := unix.Open(filepath.Dir(f.Name), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "make a file for a proof", Path: filepath.Dir(f.Name), Err: err}
	}
	defer unix.Close(fd)
	if _, err := pwriteAll(fd, make([]byte, writeProofSize), 0); err != nil {
		return nil, err
	}
	if err := unix.Fsync(fd); err != nil {
		return nil, err
	}
	own, err := storage.Adopt(fd)
	if err != nil {
		return nil, err
	}
	if own.Facts.Dev != f.Facts.Dev || own.Direct() < 0 {
		return nil, errors.Join(errors.New("the directory is on another file system"), own.Close())
	}
	return own, nil
}

// unfreed is a registration of memory that only the prover frees.
type unfreed struct{}

func (unfreed) CheckAllocated(gpu.Span) error                      { return nil }
func (unfreed) CheckAllocatedCached(gpu.Span, time.Duration) error { return nil }
