package route

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev/nvfs"
)

var (
	nvfsDeclineMemory = &Decline{NVFS, "memory", "not device memory", ""}
	nvfsDeclineBuffer = &Decline{NVFS, "buffer", "the memory is no registered buffer", "register the buffer"}
	nvfsDeclinePin    = &Decline{NVFS, "buffer", "nvidia-fs has not pinned the registered buffer: it is smaller than a block, or the module refused it, or there are too many", ""}
	nvfsDeclinePhase  = &Decline{NVFS, "alignment", "memory and file are not aligned alike in blocks of 4096 bytes", "use buffer offsets that are congruent to the file's"}
	nvfsDeclineSmall  = &Decline{NVFS, "alignment", "the request holds no whole block of 4096 bytes", ""}
	nvfsDeclineRagged = &Decline{NVFS, "alignment", "the write is not in whole blocks of 4096 bytes", "write whole blocks and truncate the file to its length, or do not require the route: ragged ends then go by way of the host"}
	nvfsDeclineProof  = &Decline{NVFS, "proof", "no read of this file has moved bytes yet, so that nobody knows whether its storage driver serves nvidia-fs", "read a block of the file first"}
)

// nvfsCut is the part of a range that consists of whole blocks.
func nvfsCut(off, end int64) (from, to int64) {
	from, to = (off+nvfsBlock-1)&^(nvfsBlock-1), end&^(nvfsBlock-1)
	if to <= from {
		return end, end
	}
	return from, to
}

// Takes takes what has at least one whole block for the drive to move.
func (r *NVFSRoute) Takes(op *Op) *Decline {
	if !op.Kind.OnDevice() {
		return nvfsDeclineMemory
	}
	if op.Buf == nil {
		return nvfsDeclineBuffer
	}
	if from, to := nvfsCut(op.Off, op.Off+int64(op.Mem.Len)); from >= to {
		return nvfsDeclineSmall
	}
	if (*r.bufs.Load())[op.Mem.Base] == nil {
		return nvfsDeclinePin
	}
	if (uint64(op.Mem.Addr())-uint64(op.Off))%nvfsBlock != 0 {
		return nvfsDeclinePhase
	}
	return r.known(op)
}

// known is what earlier transfers of the file have shown.
func (r *NVFSRoute) known(op *Op) *Decline {
	f, ok := r.files.Load(op.File)
	if !ok {
		return nil // Run says what is wrong
	}
	if why := f.(*nvfsFile).refused.Load(); why != nil {
		return why
	}
	if r.real && op.Dir == Write && !f.(*nvfsFile).Moved() {
		return nvfsDeclineProof
	}
	return nil
}

// Run moves the ops of a batch side by side, as far as their buffers have shadow
// buffers.
func (r *NVFSRoute) Run(ctx context.Context, ops []Op, res []Receipt) error {
	if len(ops) == 1 {
		return r.one(ctx, &ops[0], &res[0])
	}
	return sideBySide(ops, func(i int) error { return r.one(ctx, &ops[i], &res[i]) })
}

// sideBySide calls move for each op, several at a time, until one fails.
func sideBySide(ops []Op, move func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, min(len(ops), nvfsLanes))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(ops) {
					return
				}
				errs[w] = move(i)
			}
			next.Store(int64(len(ops))) // the others begin nothing more
		})
	}
	wg.Wait()
	return worst(errs)
}

// worst is the error that decides what becomes of a batch: a true one before a
// refusal, after which all is tried again elsewhere.
func worst(errs []error) (first error) {
	for _, err := range errs {
		if _, refusal := errors.AsType[*Refusal](err); err != nil && (first == nil || !refusal) {
			first = err
		}
	}
	return first
}

func (r *NVFSRoute) one(ctx context.Context, op *Op, rec *Receipt) error {
	if err := r.run(ctx, op, rec, r.end); err != nil {
		return r.explain(op, rec, err)
	}
	return nil
}

// An nvfsEnder moves [from, to) of a file that the drive cannot move to its place,
// and returns how much of it took another route.
type nvfsEnder func(ctx context.Context, op *Op, rec *Receipt, from, to int64) (int64, error)

// endOf is where an op ends: a drive would also fill what lies behind the end of
// the file.
func (r *NVFSRoute) endOf(op *Op) (int64, error) {
	end := op.Off + int64(op.Mem.Len)
	if op.Dir == Write {
		return end, nil
	}
	size, err := op.File.Size()
	return max(op.Off, min(end, size)), err
}

// evidence says how it is known that host memory was not touched.
func (r *NVFSRoute) evidence(rec *Receipt) {
	if r.real {
		rec.Host.Evidence = Reported // by the end-fence page
	}
}

// run moves the head, the middle and the tail of an op.
func (r *NVFSRoute) run(ctx context.Context, op *Op, rec *Receipt, ragged nvfsEnder) (err error) {
	f, err := r.open(op.File)
	if err != nil {
		return err
	}
	b := (*r.bufs.Load())[op.Mem.Base]
	if b == nil {
		return unix.EFAULT
	}
	end, err := r.endOf(op)
	if err != nil {
		return err
	}
	r.evidence(rec)
	from, to := nvfsCut(op.Off, end)
	if rec.Head, err = ragged(ctx, op, rec, op.Off, from); err != nil || op.Off+rec.Bytes < from {
		return err
	}
	if err := r.middle(ctx, op, rec, f, b, to); err != nil || op.Off+rec.Bytes < to {
		return err
	}
	rec.Tail, err = ragged(ctx, op, rec, to, end)
	return err
}

// middle has the drive move what is left up to an offset in the file.
func (r *NVFSRoute) middle(ctx context.Context, op *Op, rec *Receipt, f *nvfsFile, b *nvfsBuffer, to int64) error {
	s := b.get()
	defer b.put(s)
	if op.Dir == Read {
		before := s.Zeroed()
		defer func() { rec.Holes += s.Zeroed() - before }()
	}
	base := uint64(op.Mem.Addr()) - b.cfg.Addr
	for at := op.Off + rec.Bytes; at < to; at = op.Off + rec.Bytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		want := min(to-at, directStep)
		var n int64
		var err error
		if op.Dir == Read {
			n, err = s.Read(f.File, at, uint64(want), base+uint64(rec.Bytes))
		} else {
			n, err = s.Write(f.File, at, uint64(want), base+uint64(rec.Bytes))
		}
		rec.Bytes += n
		rec.By[NVFS] += n
		if err != nil || n < want {
			return err // or the file has shrunk
		}
	}
	return nil
}

// An nvfsEnd is a ragged end of an op on its way through the host.
type nvfsEnd struct {
	ops [1]Op
	res [1]Receipt
}

// end moves [from, to) of the file by way of the host.
func (r *NVFSRoute) end(ctx context.Context, op *Op, rec *Receipt, from, to int64) (int64, error) {
	if from >= to {
		return 0, nil
	}
	e := r.pool.Get().(*nvfsEnd)
	defer r.pool.Put(e)
	e.ops[0] = Op{Dir: op.Dir, File: op.File, Off: from, Mem: op.Mem.Slice(uint64(from-op.Off), uint64(to-from)), Kind: op.Kind}
	e.res[0] = Receipt{}
	err := r.ragged.Run(ctx, e.ops[:], e.res[:])
	n := e.res[0].Bytes
	rec.Bytes += n
	rec.By[Host] += n
	rec.Host.Bytes += e.res[0].Host.Bytes
	e.ops[0] = Op{}
	return n, err
}

// explain tells a storage driver that does not serve nvidia-fs, after which another
// route is taken, from an error.
func (r *NVFSRoute) explain(op *Op, rec *Receipt, err error) error {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, nvfs.ErrRevoked):
		return fmt.Errorf("%w: %w", ErrFreed, err)
	case errors.Is(err, nvfs.ErrNotDirect):
		d := &Decline{NVFS, "storage driver", err.Error(), "put the file on a drive whose driver registers with nvidia-fs"}
		if f, ok := r.files.Load(op.File); ok {
			f.(*nvfsFile).refused.Store(d)
		}
		return &Refusal{d, err}
	}
	return op.failAt(op.Off+rec.Bytes, " by nvidia-fs", err)
}
