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
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// writeProofSize is what a write of a stack is proved with: a page of the GPU.
const writeProofSize = 64 << 10

// errInconclusive: a proof in place has written nothing but zeros. The host memory of a route
// is zero at first, and a drive of a mirror that took its bytes has the right ones. Only that
// of nvidia-fs can be filled before (Op.proving).
var errInconclusive = errors.New("zeros prove nothing")

// proveWrites proves, once for a block stack, that writes of a route take their bytes
// from the GPU. A read that moved is no proof: RAID 5 computes parity in host memory.
// The proof writes to a file of its own beside the op's, which has no name; where
// there can be none (a block device), to the op's own range, and restores it.
func (v *prover) proveWrites(ctx context.Context, r Route, t *Traits, op *Op) error {
	k := v.known(t.ID, route.Write, op)
	if k.proved.Load() {
		return nil
	}
	if !op.InStream {
		if err := v.prepareProofs(r); err != nil {
			return v.noProof(t, op, err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proved.Load() {
		return nil
	}
	if d := k.lie.Load(); d != nil { // by the proof for which this one has waited
		return &RejectedError{d, errNotArrived}
	}
	v.proving.Lock()
	defer v.proving.Unlock()
	found, err := v.tryWrite(ctx, r, op)
	own, inPlace := errors.AsType[*inPlaceError](err)
	refused, isRefused := errors.AsType[*RejectedError](err)
	switch {
	case inPlace:
		return own.error
	case errors.Is(err, errInconclusive):
		return nil // the next write is put to the proof, too
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nvfs.ErrNotDirect):
		return &RejectedError{v.condemn(t.ID, op, cause(err)), errNotArrived}
	case isRefused: // nothing was moved
		op.passed = append(op.passed, refused.Why)
		return err
	case err != nil:
		return v.noProof(t, op, err)
	case found != nil:
		return &RejectedError{v.condemn(t.ID, op, found.String()+" after a write"), errNotArrived}
	}
	k.proved.Store(true)
	return nil
}

// An inPlaceError is one of the op itself: its own range was not written, or not restored.
type inPlaceError struct{ error }

// tryWrite writes beside the op's file or, where that is not possible, in place.
func (v *prover) tryWrite(ctx context.Context, r Route, op *Op) (*mismatch, error) {
	if op.file() != nil && v.proofMemoryFor(r) == nil {
		return nil, errNoProofMemory // before a file is made and written, for each write anew
	}
	f, err := besideOf(op)
	if err != nil {
		return v.tryInPlace(ctx, r, op)
	}
	defer f.Close()
	if _, d := r.Traits(FileSource(f)); d != nil { // by attributes of the directory
		return v.tryInPlace(ctx, r, op)
	}
	return v.tryBeside(ctx, r, op, f)
}

// noProof sends an op whose stack cannot be put to the proof to another route.
func (v *prover) noProof(t *Traits, op *Op, err error) error {
	d := decline(t.ID, "proof", "no proof that writes arrive: "+err.Error(), "")
	op.passed = append(op.passed, d)
	return &RejectedError{d, err}
}

// tryBeside writes to a file of our own.
func (v *prover) tryBeside(ctx context.Context, r Route, op *Op, f *storage.File) (*mismatch, error) {
	o := proofOp(op, route.Write, FileSource(f), 0, v.proofMemoryFor(r).from)
	data := v.randomBytes()
	w := v.view(r, &o, true)
	if err := w.store(0, data); err != nil {
		return nil, err
	}
	if err := write(ctx, r, &o); err != nil {
		return nil, err
	}
	return v.compareWritten(ctx, r, &o, data)
}

// proofOp is an op with the memory for proofs. It counts as one in a stream, whatever the
// op for which it is made: an op in a stream may wait for this proof, too.
func proofOp(op *Op, dir route.Dir, src Source, off int64, mem gpu.Span) Op {
	mem.Dev = op.Mem.Dev
	return Op{Dir: dir, Src: src, Off: off, Mem: mem, Kind: gpu.KindDevice, Buf: unfreed{}, InStream: true, strict: true, proving: true}
}

// tryInPlace writes the first blocks of the op itself, and restores them unless they have
// arrived. The route may be as strict as with the op: another one takes unaligned ends, and all
// of it after an error of the device, unless the route is required.
func (v *prover) tryInPlace(ctx context.Context, r Route, op *Op) (*mismatch, error) {
	if !v.fileOf(op).host.readable() {
		return nil, errNoReadBack
	}
	o := *op
	o.InStream, o.proving = true, true
	o.Mem = op.Mem.Slice(0, min(op.Mem.Len, writeProofSize))
	data, mem := make([]byte, o.Mem.Len), v.view(r, &o, true)
	if err := mem.load(data, 0); err != nil {
		return nil, err
	}
	before, err := v.save(&o)
	if err != nil {
		return nil, err
	}
	var found *mismatch
	err = write(ctx, r, &o)
	if err != nil && !isRejected(err) && ctx.Err() == nil {
		if op.strict {
			err = v.undo(op, before, err)
		}
		return nil, &inPlaceError{err}
	}
	if err == nil {
		found, err = v.compareWritten(ctx, r, &o, data)
	}
	switch {
	case found != nil || err != nil:
	case o.file() != nil && !tells(o.Off, data):
		return nil, errInconclusive
	default:
		return nil, nil
	}
	if rerr := v.restore(op, before); rerr != nil && (op.strict || ctx.Err() != nil) { // else the next route writes it
		return nil, &inPlaceError{op.fail(errors.Join(err, rerr))}
	}
	return found, err
}

// write has a route write all of one op.
func write(ctx context.Context, r Route, op *Op) error {
	res := make([]route.Receipt, 1)
	if err := r.Run(ctx, []Op{*op}, res); err != nil {
		return err
	}
	if res[0].Bytes != int64(op.Mem.Len) {
		return op.failAt(op.Off, "", fmt.Errorf("wrote %d bytes of %d", res[0].Bytes, op.Mem.Len))
	}
	return nil
}

// compareWritten reads all of an op back, which has written data.
func (v *prover) compareWritten(ctx context.Context, r Route, o *Op, data []byte) (*mismatch, error) {
	if found, err := v.equalBack(o, data, o.Off); found != nil || err != nil || o.file() == nil {
		return found, err
	}
	legs, _ := legBlocks(o.Off, data)
	return v.readLegs(ctx, r, o, legs)
}

// tells reports whether a write of data at off tells the drives of a mirror apart.
func tells(off int64, data []byte) bool {
	_, telling := legBlocks(off, data)
	return telling
}

func (v *prover) randomBytes() []byte {
	s := v.pool.Get().(*samples)
	defer v.pool.Put(s)
	b := make([]byte, writeProofSize)
	s.rand.Read(b)
	return b
}

// besideOf makes a file without a name in the directory of another one. It has blocks,
// so that the proof writes to blocks as the op does.
func besideOf(op *Op) (*storage.File, error) {
	f := op.file()
	if f == nil || f.Facts.Block {
		return nil, storage.ErrFileType
	}
	if err := mayWrite(writeProofSize); err != nil {
		return nil, err
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

// mayWrite checks that files of this process may have n bytes. A write behind that limit
// raises SIGXFSZ, which ends a program in C.
func mayWrite(n uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err == nil && limit.Cur < n {
		return fmt.Errorf("files of this process may have %d bytes: %w", limit.Cur, unix.EFBIG)
	}
	return nil
}

// unfreed is a registration of memory that only the prover frees.
type unfreed struct{}

func (unfreed) CheckAllocated(gpu.Span) error                      { return nil }
func (unfreed) CheckAllocatedCached(gpu.Span, time.Duration) error { return nil }
