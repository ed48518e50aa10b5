package ladder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/internal/wc"
	"github.com/culvert-io/culvert/route"
)

const (
	// readBackStep is how much of a write has two places that are read back, by one read
	// of the drive.
	readBackStep = 1 << 20
	maxReadBacks = 16
	// saveStep is how much is saved at a time: a read past the page cache needs as much
	// aligned memory.
	saveStep = 4 << 20
)

// runMixed moves a batch of reads and writes, one op after the other.
func (v *prover) runMixed(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) error {
	for i := range ops {
		if err := v.run(ctx, r, t, ops[i:i+1], res[i:i+1]); err != nil {
			return &afterError{i, err}
		}
	}
	return nil
}

// write writes ops to stacks whose writes were proved, and reads samples back.
func (v *prover) write(ctx context.Context, r Route, t *Traits, ops []Op, res []route.Receipt) error {
	var before []*saved
	if ops[0].strict {
		before = make([]*saved, len(ops))
	}
	err := v.prepareWrites(ctx, r, t, ops, before)
	if err == nil {
		err = r.Run(ctx, ops, res)
		if errors.Is(err, nvfs.ErrNotDirect) {
			// The proof has written to a drive that moves bytes, and this write to one that does
			// not. The next would damage the file again, until another route repeats it.
			v.condemn(t.ID, &ops[rejectedOp(r, ops)], cause(err))
		}
	}
	for i := range ops {
		if err == nil && v.fileOf(&ops[i]) != nil {
			err = v.confirm(r, t, ops, res, i)
		}
	}
	if err == nil {
		return nil
	}
	failed := err
	for i := range ops {
		if before != nil && (isRejected(failed) || ctx.Err() == nil) {
			err = v.undo(&ops[i], before[i], err)
		}
		// Callers take what is counted for written.
		known := before == nil && !isRejected(failed) && ctx.Err() == nil
		if !known || res[i].Bytes == 0 || v.fileOf(&ops[i]) == nil || v.confirm(r, t, ops, res, i) != nil {
			uncount(&res[i])
		}
	}
	return err
}

// rejectedOp is the op of a batch that a route has rejected, as far as it knows.
func rejectedOp(r Route, ops []Op) int {
	for i := range ops {
		if r.State(&ops[i]).Learned != nil {
			return i
		}
	}
	return 0
}

// undo undoes a write that failed. If that fails, too, the error that it returns is no rejection:
// that would say that the file is as it was.
func (v *prover) undo(op *Op, s *saved, err error) error {
	lost := v.restore(op, s)
	if lost == nil {
		return err
	}
	if inner, ok := err.(*OpError); ok {
		err = inner.Err
	}
	if isRejected(err) {
		err = errors.New(err.Error())
	}
	return op.fail(fmt.Errorf("%w; %w", err, lost))
}

// prepareWrites saves what the ops will overwrite, where before has room for it, and
// proves that writes of their stacks arrive. In this order: a proof may write to the file
// itself, also where the next op will.
func (v *prover) prepareWrites(ctx context.Context, r Route, t *Traits, ops []Op, before []*saved) (err error) {
	for i := range before { // none if the next route writes the ranges again
		o := &ops[i]
		if v.fileOf(o) == nil {
			continue
		}
		if before[i], err = v.save(o); err != nil {
			clear(before) // nothing was written
			return o.failAt(o.Off, "", fmt.Errorf("read what is there, to restore it if the write does not arrive: %w", err))
		}
	}
	for i := range ops {
		if v.fileOf(&ops[i]) == nil {
			continue
		}
		if err := v.proveWrites(ctx, r, t, &ops[i]); err != nil {
			if before != nil {
				clear(before[i:]) // the proof has restored what it wrote, and nothing else is written
			}
			return err
		}
	}
	return nil
}

// confirm reads op i back, by sample once its stack has passed the trial.
func (v *prover) confirm(r Route, t *Traits, ops []Op, res []route.Receipt, i int) error {
	o := &ops[i]
	if n := res[i].Bytes; n > int64(o.Mem.Len) {
		return v.deny(t, ops, o, fmt.Sprintf("%d bytes were reported for a write of %d", n, o.Mem.Len))
	}
	found, level, err := v.readBack(r, t, o, res[i].Bytes)
	switch {
	case err != nil:
		return unproved(t, ops, i, fmt.Errorf("read the write back: %w", err))
	case found == nil:
		res[i].Arrival = level
		if level == route.ArrivalProved {
			v.known(t.ID, route.Write, o).proofs.Add(1)
		}
		return nil
	}
	if err := checkAllocated(ops[i:i+1], 0); err != nil {
		return err
	}
	return v.deny(t, ops, o, found.String()+" after a write")
}

// readBack compares places of a write with what the drive has, or, while its stack is on
// trial, all of it.
func (v *prover) readBack(r Route, t *Traits, op *Op, n int64) (*mismatch, route.Arrival, error) {
	if !v.fileOf(op).host.readable() || n == 0 {
		return nil, route.ArrivalReported, nil
	}
	s := v.pool.Get().(*samples)
	defer v.pool.Put(s)
	if n < placeSize || v.onTrial(t.ID, op, 0) {
		return v.readBackWidely(r, op, s, n)
	}
	s.pairs = s.pairs[:0]
	s.choosePairs(op.Off, op.Off+n, writePairs(n))
	found, err := v.settled(func() (*mismatch, error) { return v.comparePairs(r, op, s) })
	return found, route.ArrivalSampled, err
}

// writePairs is how many pairs of places of a write of n bytes are read back.
func writePairs(n int64) int64 { return min(max(n/readBackStep, 1), maxReadBacks) }

// comparePairs compares GPU memory with the drive at the places of a write.
func (v *prover) comparePairs(r Route, op *Op, s *samples) (found *mismatch, err error) {
	host, mem := v.fileOf(op).host, v.view(r, op, false)
	defer wc.Guard(wc.Arm(), &err)
	mem.beginLoads()
	for k := range s.pairs {
		p := &s.pairs[k]
		s.readPair(p, func(b []byte, off int64) bool {
			err = host.readBack(b, off, s.block)
			return err == nil
		})
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &mismatch{off: max(p.at[0], p.at[1]) + placeSize, short: true}, nil
		}
		if err != nil {
			return nil, err
		}
		if found, err = s.comparePair(&mem, p, op.end()); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// readBackWidely compares all of a write, or parts of a long one.
func (v *prover) readBackWidely(r Route, op *Op, s *samples, n int64) (*mismatch, route.Arrival, error) {
	mem := v.view(r, op, true)
	for _, p := range wideParts(s, op.Off, op.Off+n) {
		written := make([]byte, p.n)
		found, err := v.settled(func() (*mismatch, error) {
			if err := mem.load(written, uint64(p.off-op.Off)); err != nil {
				return nil, err
			}
			return v.equalBack(op, written, p.off)
		})
		if found != nil || err != nil {
			return found, route.ArrivalReported, err
		}
	}
	return nil, route.ArrivalProved, nil
}

// settled compares again after a difference: another process may be writing.
func (v *prover) settled(compare func() (*mismatch, error)) (*mismatch, error) {
	found, err := compare()
	if found != nil && err == nil {
		v.wait(clockStep)
		found, err = compare()
	}
	return found, err
}

// saved is what a range of a file held before a write.
type saved struct {
	off  int64
	data []byte
	size int64 // of the file
	end  int64 // of the write
}

// save reads what a write will overwrite, for a write that no other route may repeat.
func (v *prover) save(op *Op) (*saved, error) {
	host := v.fileOf(op).host
	size, err := host.size()
	if err != nil {
		return nil, err
	}
	s := &saved{off: op.Off, size: size, end: op.end()}
	if n := min(s.end, size) - s.off; n > 0 && host.readable() {
		s.data = make([]byte, n)
	}
	return s, readSteps(host, s.data, s.off)
}

func readSteps(host witness, b []byte, off int64) (err error) {
	for at := 0; at < len(b) && err == nil; at += saveStep {
		err = host.read(b[at:min(at+saveStep, len(b))], off+int64(at))
	}
	return err
}

// restore puts back what a write has overwritten. A file that cannot be written and reads as
// before was not written by the drive either.
func (v *prover) restore(op *Op, s *saved) error {
	if s == nil {
		return nil
	}
	err := v.fileOf(op).host.undo(s)
	if err == nil || v.holds(op, s) {
		return nil
	}
	return fmt.Errorf("restore %d bytes at offset %d: %w", len(s.data), s.off, err)
}

// holds reports whether a file reads as it was when s was saved.
func (v *prover) holds(op *Op, s *saved) bool {
	host, now := v.fileOf(op).host, make([]byte, len(s.data))
	size, err := host.size()
	return err == nil && size == s.size && readSteps(host, now, s.off) == nil && bytes.Equal(now, s.data)
}

// equalBack reports whether a range of the source of an op holds data.
func (v *prover) equalBack(op *Op, data []byte, off int64) (*mismatch, error) {
	got := make([]byte, len(data))
	err := v.fileOf(op).host.readBack(got, off, nil)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &mismatch{off: off + int64(len(data)), short: true}, nil
	}
	if err != nil {
		return nil, err
	}
	if bytes.Equal(got, data) {
		return nil, nil
	}
	return firstDifference(data, got, off), nil
}
