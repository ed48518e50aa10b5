package ladder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/route"
)

// nvfsCut is the part of a range that consists of whole blocks.
func nvfsCut(off, end int64) (from, to int64) {
	from, to = (off+nvfsBlock-1)&^(nvfsBlock-1), end&^(nvfsBlock-1)
	if to <= from {
		return end, end
	}
	return from, to
}

// Run moves the ops of a batch concurrently, as far as their buffers have shadow
// buffers.
func (r *nvfsRoute) Run(ctx context.Context, ops []Op, res []route.Receipt) (err error) {
	if len(ops) == 1 {
		err = r.one(ctx, &ops[0], &res[0])
	} else {
		err = concurrently(ops, func(i int) error { return r.one(ctx, &ops[i], &res[i]) })
	}
	// The module answers EIO for a request with pages of both kinds, and a file system for a
	// checksum of the shadow buffer.
	return ambiguousToNextRoute(route.NVFS, ops, err)
}

// concurrently calls move for each op, several at a time, until one fails.
func concurrently(ops []Op, move func(i int) error) error {
	var next atomic.Int64
	errs := make([]error, min(len(ops), nvfsMaxShadows))
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
			next.Store(int64(len(ops))) // the others start nothing more
		})
	}
	wg.Wait()
	return worst(errs)
}

// worst is the error that decides about a batch: a real one before a rejection, after
// which the whole batch is retried on another route.
func worst(errs []error) (first error) {
	for _, err := range errs {
		if _, refusal := errors.AsType[*RejectedError](err); err != nil && (first == nil || !refusal) {
			first = err
		}
	}
	return first
}

func (r *nvfsRoute) one(ctx context.Context, op *Op, rec *route.Receipt) (err error) {
	switch {
	case !op.strict:
		err = r.run(ctx, op, rec, r.throughHost)
	case r.aligned(op):
		err = r.run(ctx, op, rec, r.bounced)
	default:
		err = r.runBounced(ctx, op, rec)
	}
	if err != nil {
		return r.explain(op, rec, err)
	}
	return nil
}

// aligned reports whether the drive can move a part of the op to its place.
func (r *nvfsRoute) aligned(op *Op) bool {
	s := r.State(op)
	from, to := nvfsCut(op.Off, op.end())
	return op.Buf != nil && s.Prepared && !s.Misaligned && from < to
}

// An nvfsEnder moves [from, to) of a file, which the drive cannot move to its place,
// and returns how much of it took another route.
type nvfsEnder func(ctx context.Context, op *Op, rec *route.Receipt, from, to int64) (int64, error)

// endOf is where an op ends. A drive would also fill what follows the end of the
// file.
func (r *nvfsRoute) endOf(op *Op) (int64, error) {
	if op.Dir == route.Write {
		return op.end(), nil
	}
	size, err := op.fileSize()
	return max(op.Off, min(op.end(), size)), err
}

// evidence says how it is known that no byte entered host memory.
func (r *nvfsRoute) evidence(rec *route.Receipt) {
	if r.real {
		rec.Host.Evidence = route.Reported // by the end-fence page
	}
}

// run moves the head, the middle and the tail of an op.
func (r *nvfsRoute) run(ctx context.Context, op *Op, rec *route.Receipt, unaligned nvfsEnder) (err error) {
	f, err := r.open(op.file())
	if err != nil {
		return err
	}
	b, ok := r.bufs.get(op.Mem.Base)
	if !ok {
		return unix.EFAULT
	}
	end, err := r.endOf(op)
	if err != nil {
		return err
	}
	r.evidence(rec)
	from, to := nvfsCut(op.Off, end)
	if rec.Head, err = unaligned(ctx, op, rec, op.Off, from); err != nil || op.Off+rec.Bytes < from {
		return err
	}
	if err := r.middle(ctx, op, rec, f, b, to); err != nil || op.Off+rec.Bytes < to {
		return err
	}
	rec.Tail, err = unaligned(ctx, op, rec, to, end)
	return err
}

// middle has the drive move what is left up to an offset in the file.
func (r *nvfsRoute) middle(ctx context.Context, op *Op, rec *route.Receipt, f *nvfsFile, b *nvfsBuffer, to int64) error {
	s := b.get()
	defer b.put(s)
	if op.Dir == route.Read {
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
		switch devOff := base + uint64(rec.Bytes); {
		case op.Dir == route.Write:
			n, err = nvfsWrite(s, op, f, at, uint64(want), devOff)
		case op.proving:
			n, err = s.ReadOnce(f.File, at, uint64(want), devOff)
		default:
			n, err = s.Read(f.File, at, uint64(want), devOff)
		}
		rec.Bytes += n
		rec.By[route.NVFS] += n
		if err != nil || n < want {
			return err // or the file was truncated
		}
	}
	return nil
}

// nvfsWrite has the drive write blocks of a buffer.
func nvfsWrite(s *nvfs.Buffer, op *Op, f *nvfsFile, at int64, n, devOff uint64) (int64, error) {
	if op.proving {
		return s.WriteScrubbed(f.File, at, n, devOff)
	}
	return s.Write(f.File, at, n, devOff)
}

// An nvfsEnd is an unaligned end of an op that goes through host memory.
type nvfsEnd struct {
	ops [1]Op
	res [1]route.Receipt
}

// throughHost moves [from, to) of the file through host memory.
func (r *nvfsRoute) throughHost(ctx context.Context, op *Op, rec *route.Receipt, from, to int64) (int64, error) {
	if from >= to {
		return 0, nil
	}
	e := r.pool.Get().(*nvfsEnd)
	defer r.pool.Put(e)
	e.ops[0] = Op{Dir: op.Dir, Src: op.Src, Off: from, Mem: op.Mem.Slice(uint64(from-op.Off), uint64(to-from)), Kind: op.Kind, InStream: op.InStream}
	e.res[0] = route.Receipt{}
	err := r.unaligned.Run(ctx, e.ops[:], e.res[:])
	n := e.res[0].Bytes
	rec.Bytes += n
	rec.By[route.Host] += n
	rec.Host.Bytes += e.res[0].Host.Bytes
	e.ops[0] = Op{}
	return n, err
}

// reject sends this request and later ones of the file to another route.
func (r *nvfsRoute) reject(op *Op, err error, test, fix string) error {
	d := decline(route.NVFS, test, err.Error(), fix)
	if f, ok := r.files.Load(op.file()); ok {
		f.(*nvfsFile).rejected.Store(d)
	}
	return &RejectedError{d, err}
}

// explain distinguishes an error from a cause after which another route is used.
func (r *nvfsRoute) explain(op *Op, rec *route.Receipt, err error) error {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, nvfs.ErrRevoked):
		return fmt.Errorf("%w: %w", route.ErrFreed, err)
	case errors.Is(err, nvfs.ErrNotDirect):
		return r.reject(op, err, "storage driver", "put the file on a drive whose driver supports nvidia-fs")
	case errors.Is(err, unix.ESTALE):
		// btrfs gives files another device number than the super block has, by which the
		// module identifies them.
		return r.reject(op, err, "file identity", "put the file on ext4 or xfs")
	case errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE):
		// The emulated module opens files in this process.
		return r.reject(op, err, "descriptors", "raise the limit on open files: ulimit -n")
	}
	return op.failAt(op.Off+rec.Bytes, " by nvidia-fs", err)
}
