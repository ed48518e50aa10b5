package ladder

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/route"
)

// nvfsBounceSize is how much passes through the bounce buffer at a time.
const nvfsBounceSize = 1 << 20

// An nvfsBounce is GPU memory that the drive accesses in whole blocks if the caller's
// memory is unaligned or not registered. A copy within the GPU moves the bytes to
// their place, by a stream of the copier: others wait for the buffer meanwhile, and streams
// for them. It is made at first use.
type nvfsBounce struct {
	mu     sync.Mutex // held during a transfer
	addr   gpu.Addr
	shadow *nvfs.Buffer
}

func (b *nvfsBounce) open(r *nvfsRoute) (err error) {
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

// runBounced moves all of an op through the bounce buffer.
func (r *nvfsRoute) runBounced(ctx context.Context, op *Op, rec *route.Receipt) error {
	to, err := r.endOf(op)
	if err != nil {
		return err
	}
	r.evidence(rec)
	_, err = r.bounced(ctx, op, rec, op.Off, to)
	return err
}

// bounced moves [from, to) of the file through the bounce buffer.
func (r *nvfsRoute) bounced(ctx context.Context, op *Op, rec *route.Receipt, from, to int64) (int64, error) {
	f, err := r.open(op.file())
	if err != nil || from >= to {
		return 0, err
	}
	b := &r.bounce
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.open(r); err != nil {
		return 0, err
	}
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		want := min(to-at, nvfsBounceSize-at%nvfsBlock)
		n, err := r.bounceChunk(f, op, at, want)
		at += n
		rec.Bytes += n
		rec.By[route.NVFS] += n
		if err != nil || n < want {
			return 0, err // or the file was truncated
		}
	}
	return 0, nil
}

// bounceChunk moves up to one buffer.
func (r *nvfsRoute) bounceChunk(f *nvfsFile, op *Op, at, want int64) (int64, error) {
	b := &r.bounce
	mem := op.Mem.Addr() + gpu.Addr(at-op.Off)
	in := at % nvfsBlock
	blocks := uint64(in+want+nvfsBlock-1) &^ (nvfsBlock - 1)
	if op.Dir == route.Write {
		if uint64(want) != blocks {
			return 0, unix.EINVAL // choose has declined it
		}
		if err := r.copies.inStream(b.addr, mem, blocks); err != nil {
			return 0, err
		}
		return nvfsWrite(b.shadow, op, f, at, blocks, 0)
	}
	n, err := b.shadow.Read(f.File, at-in, blocks, 0)
	n = min(want, max(n-in, 0))
	if err != nil || n == 0 {
		return 0, err
	}
	return n, r.copies.inStream(mem, b.addr+gpu.Addr(in), uint64(n))
}
