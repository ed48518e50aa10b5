package ladder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/uring"
	"github.com/culvert-io/culvert/route"
)

// A mirror serves a single read by a drive that is idle, always the same one, and reads that
// are in flight together by all its drives. A drive whose driver does not know GPU memory has
// taken the shadow buffer's bytes, and does not move reads to GPU memory.
const (
	// legReads is how many reads of a proof are in flight together, however short the write
	// is. Of 60 first writes of 4 to 16 KiB to RAID 1 whose second drive had no hooks, 58 were
	// believed with one read for each block (nvidia-fs 2.28.4, Linux 6.12).
	legReads = writeProofSize / placeBlock
	// legRounds is how often that is done: the first READ of each shadow buffer of
	// nvidia-fs is alone.
	legRounds = 2
)

// A legBlock is a block that was written, at an offset in the file.
type legBlock struct {
	off  int64
	data []byte
}

// legBlocks are the blocks of a write of data at off that tell the drives of a mirror apart:
// those that are not zero, as the host memory of a route is at first. If there are none, they
// are all blocks, and telling is false. The last one comes first, because a mirror serves
// reads in ascending order by one drive.
func legBlocks(off int64, data []byte) (legs []legBlock, telling bool) {
	var zeros []legBlock
	first := (off + placeBlock - 1) / placeBlock * placeBlock
	for at := (off + int64(len(data))) / placeBlock * placeBlock; at > first; {
		at -= placeBlock
		if b := data[at-off:][:placeBlock]; isZero(b) {
			zeros = append(zeros, legBlock{at, b})
		} else {
			legs = append(legs, legBlock{at, b})
		}
	}
	if len(legs) == 0 {
		return zeros, false
	}
	return legs, true
}

func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// readLegs reads blocks that were written, by the host past the page cache and by the route
// itself, several at a time.
func (v *prover) readLegs(ctx context.Context, r Route, op *Op, blocks []legBlock) (*mismatch, error) {
	if len(blocks) == 0 {
		return nil, nil
	}
	legs := make([]legBlock, legReads)
	for k := range legs {
		legs[k] = blocks[k%len(blocks)]
	}
	for range legRounds {
		if found, err := v.hostLegs(op, legs); found != nil || err != nil {
			return found, err
		}
	}
	return v.routeLegs(ctx, r, op, legs)
}

// hostLegs compares blocks with what the host reads.
func (v *prover) hostLegs(op *Op, legs []legBlock) (*mismatch, error) {
	got := alignedBytes(len(legs)*placeBlock, hostPage)
	offs := make([]int64, len(legs))
	for k := range legs {
		offs[k] = legs[k].off
	}
	if err := v.fileOf(op).host.readTogether(got, offs); err != nil {
		return nil, err
	}
	for k, b := range legs {
		if found := firstDifference(b.data, got[k*placeBlock:][:placeBlock], b.off); found != nil {
			return found, nil
		}
	}
	return nil, nil
}

// routeLegs compares blocks with what the route reads.
func (v *prover) routeLegs(ctx context.Context, r Route, op *Op, legs []legBlock) (*mismatch, error) {
	space := v.proofMemoryFor(r)
	ops, res := make([]Op, len(legs)), make([]route.Receipt, len(legs))
	for k := range ops {
		ops[k] = proofOp(op, route.Read, op.Src, legs[k].off, space.to.Slice(uint64(k)*placeBlock, placeBlock))
	}
	all := proofOp(op, route.Read, op.Src, 0, space.to)
	mem, got, blank := v.view(r, &all, true), make([]byte, space.to.Len), inverted(legs)
	for range legRounds {
		clear(res)
		if err := errors.Join(mem.store(0, blank), r.Run(ctx, ops, res), mem.load(got, 0)); err != nil {
			return nil, err
		}
		for k, b := range legs {
			if found := firstDifference(got[k*placeBlock:][:placeBlock], b.data, b.off); found != nil {
				return found, nil
			}
		}
	}
	return nil, nil
}

// inverted has no byte of the blocks at its place.
func inverted(legs []legBlock) (all []byte) {
	for _, b := range legs {
		for _, x := range b.data {
			all = append(all, ^x)
		}
	}
	return all
}

// submitTogether reads blocks by one submission to io_uring. Linux gives a mirror all of them
// before it starts the first, so that each drive gets its share.
func submitTogether(fd int, p []byte, offs []int64) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	u, err := uring.New(len(offs))
	if err != nil {
		return err
	}
	for k, off := range offs {
		err = errors.Join(err, u.Read(fd, p[k*placeBlock:][:placeBlock], off, uint64(k)))
	}
	done := make([]uring.Done, len(offs))
	for left := len(offs); left > 0 && err == nil; {
		if err = u.Submit(left); err != nil {
			break
		}
		n := u.Reap(done)
		for _, d := range done[:n] {
			err = errors.Join(err, wholeBlock(int(d.Res), nil))
		}
		left -= n
	}
	return errors.Join(err, u.Close())
}

// preadTogether is submitTogether by as many threads, where io_uring is refused. They may
// run one after the other.
func preadTogether(fd int, p []byte, offs []int64) error {
	errs := make(chan error, len(offs))
	for k, off := range offs {
		go func() { errs <- wholeBlock(unix.Pread(fd, p[k*placeBlock:][:placeBlock], off)) }()
	}
	var err error
	for range offs {
		err = errors.Join(err, <-errs)
	}
	return err
}

func wholeBlock(n int, err error) error {
	if err == nil && n != placeBlock {
		err = fmt.Errorf("read %d bytes of %d: %w", n, placeBlock, io.ErrUnexpectedEOF) // or a negated errno
	}
	return err
}
