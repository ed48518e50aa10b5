package route

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
)

// nvfsBounceSize is how much passes through the bounce buffer at a time.
const nvfsBounceSize = 1 << 20

// An nvfsBounce is GPU memory that whole blocks are read to and written from where
// the caller's memory does not allow it, and from which a copy within the GPU
// brings the bytes to where they belong. It is made at first use.
type nvfsBounce struct {
	mu     sync.Mutex // held during a transfer
	addr   gpu.Addr
	shadow *nvfs.Buffer
}

func (b *nvfsBounce) open(r *NVFSRoute) (err error) {
	if b.shadow != nil {
		return nil
	}
	if b.addr, err = r.dev.Alloc(gpu.KindDevice, nvfsBounceSize, 0); err != nil {
		return err
	}
	b.shadow, err = r.client.Register(r.config(uint64(b.addr), nvfsBounceSize))
	if err != nil {
		return errors.Join(err, r.dev.Free(b.addr))
	}
	return nil
}

func (b *nvfsBounce) close(dev gpu.Device) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shadow == nil {
		return nil
	}
	err := errors.Join(b.shadow.Close(), dev.Free(b.addr))
	b.shadow = nil
	return err
}

// An nvfsWhole is the route for those who want no other: what the drive cannot move
// to its place goes through the bounce buffer, and not by way of the host.
type nvfsWhole struct{ *NVFSRoute }

// strict is the route without any other.
func (r *NVFSRoute) strict() Route { return &nvfsWhole{r} }

// Takes takes what can be moved in whole blocks. A write of less would first have to
// read the rest of its block, and undo what others write there meanwhile.
func (r *nvfsWhole) Takes(op *Op) *Decline {
	if !op.Kind.OnDevice() {
		return nvfsDeclineMemory
	}
	if op.Dir == Write && (uint64(op.Off)|op.Mem.Len)%nvfsBlock != 0 {
		return nvfsDeclineRagged
	}
	return r.known(op)
}

// Run moves the ops of a batch side by side.
func (r *nvfsWhole) Run(ctx context.Context, ops []Op, res []Receipt) error {
	if len(ops) == 1 {
		return r.one(ctx, &ops[0], &res[0])
	}
	return sideBySide(ops, func(i int) error { return r.one(ctx, &ops[i], &res[i]) })
}

func (r *nvfsWhole) one(ctx context.Context, op *Op, rec *Receipt) error {
	move := r.run
	if r.NVFSRoute.Takes(op) != nil {
		move = r.runBounced
	}
	if err := move(ctx, op, rec, r.bounce); err != nil {
		return r.explain(op, rec, err)
	}
	return nil
}

// runBounced has all of an op bounce.
func (r *nvfsWhole) runBounced(ctx context.Context, op *Op, rec *Receipt, end nvfsEnder) error {
	to, err := r.endOf(op)
	if err != nil {
		return err
	}
	r.evidence(rec)
	_, err = end(ctx, op, rec, op.Off, to)
	return err
}

// bounce moves [from, to) of the file through the bounce buffer.
func (r *nvfsWhole) bounce(ctx context.Context, op *Op, rec *Receipt, from, to int64) (int64, error) {
	f, err := r.open(op.File)
	if err != nil || from >= to {
		return 0, err
	}
	b := &r.spare
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(r.NVFSRoute); err != nil {
		return 0, err
	}
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		want := min(to-at, nvfsBounceSize-at%nvfsBlock)
		n, err := r.bouncePiece(f, op, at, want)
		at += n
		rec.Bytes += n
		rec.By[NVFS] += n
		if err != nil || n < want {
			return 0, err // or the file has shrunk
		}
	}
	return 0, nil
}

// bouncePiece moves as much as the buffer holds.
func (r *nvfsWhole) bouncePiece(f *nvfsFile, op *Op, at, want int64) (int64, error) {
	b := &r.spare
	mem := op.Mem.Addr() + gpu.Addr(at-op.Off)
	in := at % nvfsBlock
	blocks := uint64(in+want+nvfsBlock-1) &^ (nvfsBlock - 1)
	if op.Dir == Write {
		if uint64(want) != blocks {
			return 0, unix.EINVAL // Takes has refused it
		}
		if err := r.dev.Copy(b.addr, mem, blocks); err != nil {
			return 0, err
		}
		return b.shadow.Write(f.File, at, blocks, 0)
	}
	n, err := b.shadow.Read(f.File, at-in, blocks, 0)
	n = min(want, max(n-in, 0))
	if err != nil || n == 0 {
		return 0, err
	}
	return n, r.dev.Copy(mem, b.addr+gpu.Addr(in), uint64(n))
}
