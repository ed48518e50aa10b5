package nvme_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/libnvm"
	softnvme "github.com/culvert-io/culvert/soft/nvme"
	"github.com/culvert-io/culvert/soft/pcie"
)

// pageBlocks is how many blocks a command of the kernel moves.
const pageBlocks = 128

// newMappedRig is a gpuFixture whose driver goes through libnvm, which maps the
// registers.
func newMappedFixture(t *testing.T, s gpuSetup, cfg nvme.Config) *gpuFixture {
	t.Helper()
	if raceEnabled {
		t.Skip("needs a build without the race detector, which does not see the order that mapped registers make")
	}
	r := newGPUFixture(t, s)
	r.check(r.c.Close())
	tr, err := libnvm.Open(seen(r.m), "/dev/libnvm0")
	r.check(err)
	r.c, err = nvme.Open(tr, cfg)
	r.check(err)
	r.ns = r.c.Namespaces()[0]
	free, _, err := r.dev.MemInfo()
	r.check(err)
	t.Cleanup(func() {
		if err := r.c.Close(); err != nil && !errors.Is(err, nvme.ErrClosed) {
			t.Error(err)
		}
		if now, _, _ := r.dev.MemInfo(); now != free {
			t.Errorf("%d bytes of GPU memory leaked", free-now)
		}
	})
	return r
}

func (r *gpuFixture) gpuQueue(depth int) *nvme.GPUQueue {
	r.Helper()
	q, err := r.c.NewGPUQueue(r.dev, depth)
	r.check(err)
	return q
}

// TestGPUQueue has a kernel on the GPU read a whole drive and write it again.
// Host memory sees no byte of data, and none of the queues.
func TestGPUQueue(t *testing.T) {
	for name, s := range map[string]gpuSetup{
		"plain": {}, "scattered": {scatter: true}, "translating": {iommu: pcie.Translating, scatter: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMappedFixture(t, s, nvme.Config{})
			q := r.gpuQueue(7) // the rings go round more than once
			buf := r.alloc(diskSize)
			before := r.account()
			r.check(q.Read(r.ctx, r.ns, buf, 0, 0, diskSize/512))
			r.fromGPU(before, diskSize)
			if !bytes.Equal(r.out(buf.Span()), r.content) {
				t.Error("GPU memory holds other bytes than the drive")
			}
			for i := range r.content {
				r.content[i] ^= 0xa5
			}
			r.check(r.dev.CopyIn(buf.Span().Addr(), r.content))
			before = r.account()
			r.check(q.Write(r.ctx, r.ns, buf, 0, 0, diskSize/512))
			r.fromGPU(before, diskSize)
			// Into another place: the rest of the memory stays as it is.
			r.check(r.dev.Fill(buf.Span().Addr(), 0, 1, diskSize))
			r.check(q.Read(r.ctx, r.ns, buf, 2<<20, 3*pageBlocks, 5*pageBlocks))
			want := make([]byte, diskSize)
			copy(want[2<<20:], r.content[3<<16:][:5<<16])
			if !bytes.Equal(r.out(buf.Span()), want) {
				t.Error("after the way back GPU memory holds other bytes, or more of them")
			}
			r.check(q.Close())
			r.check(buf.Close())
		})
	}
}

// fromGPU checks what moved since an earlier account: everything between the
// drive and the GPU.
func (r *gpuFixture) fromGPU(before account, n uint64) {
	r.Helper()
	now := r.account()
	if now.host != before.host {
		r.Errorf("host memory saw %+v, before that %+v", now.host, before.host)
	}
	commands := n >> 16
	for _, c := range []struct {
		what      string
		got, want uint64
	}{
		{"commands", now.drive.Commands - before.drive.Commands, commands},
		{"bytes of commands", now.drive.Fetched - before.drive.Fetched, commands * abi.CommandSize},
		{"bytes of lists", now.drive.Listed - before.drive.Listed, commands * 15 * 8},
		{"bytes of completions", now.drive.Posted - before.drive.Posted, commands * abi.CompletionSize},
		{"bytes of data", now.drive.In + now.drive.Out - before.drive.In - before.drive.Out, n},
	} {
		if c.got != c.want {
			r.Errorf("%d %s, want %d", c.got, c.what, c.want)
		}
	}
	moved := now.gpu.Up + now.gpu.Down - before.gpu.Up - before.gpu.Down
	if want := n + commands*(abi.CommandSize+15*8+abi.CompletionSize); moved != want {
		r.Errorf("%d bytes crossed the GPU's link, want %d", moved, want)
	}
}

// TestGPUQueueErrors has commands of a kernel fail.
func TestGPUQueueErrors(t *testing.T) {
	r := newMappedFixture(t, gpuSetup{}, nvme.Config{})
	q := r.gpuQueue(4)
	buf := r.alloc(2 << 20) // smaller ones share a block, which is freed with the last of them
	heal := r.drive.FailBlock(1, 5*pageBlocks+7, softnvme.Read)
	var op *nvme.OpError
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks); !errors.Is(err, nvme.StatusUnrecoveredRead) || !errors.As(err, &op) || op.LBA != 5*pageBlocks {
		t.Errorf("a block that cannot be read: %v", err)
	}
	heal()
	if err := q.Read(r.ctx, r.ns, buf, 0, diskSize/512-pageBlocks, 2*pageBlocks); !errors.Is(err, nvme.StatusLBAOutOfRange) {
		t.Errorf("behind the end: %v", err)
	}
	r.check(q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks))
	// Memory that is freed while it is mapped.
	r.check(r.dev.Free(buf.Span().Base))
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks); !errors.Is(err, nvme.StatusDataTransferError) {
		t.Errorf("memory that was freed: %v", err)
	}
	if err := buf.Close(); !errors.Is(err, nvme.ErrRevoked) {
		t.Error(err)
	}
	other := r.alloc(1 << 16)
	r.check(q.Read(r.ctx, r.ns, other, 0, pageBlocks, pageBlocks))
	if !bytes.Equal(r.out(other.Span()), r.content[1<<16:][:1<<16]) {
		t.Error("the queue does not work any more")
	}
	r.check(other.Close())
	r.check(q.Close())
}

// TestGPUQueueGivesUp has the controller sit on a command: the kernel ends, the
// queue is deleted, and the driver goes on.
func TestGPUQueueGivesUp(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := newMappedFixture(t, gpuSetup{}, nvme.Config{Timeout: patience})
	q := r.gpuQueue(4)
	buf := r.alloc(8 << 16)
	r.drive.Stall(1)
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks); !errors.Is(err, nvme.ErrTimeout) {
		t.Errorf("%v, want %v", err, nvme.ErrTimeout)
	}
	if n := r.drive.Parked(); n != 0 {
		t.Errorf("the controller still has %d commands", n)
	}
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks); !errors.Is(err, nvme.ErrTimeout) {
		t.Errorf("a queue that was given up: %v", err)
	}
	if err := q.Close(); !errors.Is(err, nvme.ErrClosed) {
		t.Errorf("close of a queue that was given up: %v", err)
	}
	r.check(r.ns.Read(r.ctx, buf, 0, 0, 8*pageBlocks))
	// The next one works, until a reset.
	q = r.gpuQueue(4)
	r.check(q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks))
	r.check(r.c.Reset())
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks); !errors.Is(err, nvme.ErrReset) {
		t.Errorf("after a reset: %v", err)
	}
	q = r.gpuQueue(4)
	r.check(q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks))
	if !bytes.Equal(r.out(buf.Span()), r.content[:8<<16]) {
		t.Error("GPU memory holds other bytes than the drive")
	}
	r.check(buf.Close())
	r.check(r.c.Close()) // with the queue in it
	if err := q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks); !errors.Is(err, nvme.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

// TestGPUQueueHostile has the controller answer the kernel in wrong ways. What
// it takes for done has the right bytes.
func TestGPUQueueHostile(t *testing.T) {
	r := newMappedFixture(t, gpuSetup{}, nvme.Config{Timeout: patience})
	buf := r.alloc(1 << 20)
	for seed := range uint64(8) {
		q := r.gpuQueue(5)
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 3))
		r.drive.Tamper(func(e softnvme.Completion) []softnvme.Completion {
			mu.Lock()
			defer mu.Unlock()
			if e.SQID == 0 {
				return []softnvme.Completion{e}
			}
			b := e
			switch rnd.IntN(8) {
			case 0:
				return []softnvme.Completion{e, e}
			case 1:
				b.DW3 ^= 1 << rnd.IntN(16)
				return []softnvme.Completion{b, e}
			case 2:
				e.SQHD, e.DW0, e.DW1 = 0xbeef, rnd.Uint32(), rnd.Uint32()
			case 3:
				b.DW3 |= 0x7f0
				return []softnvme.Completion{e, b}
			}
			return []softnvme.Completion{e}
		})
		r.check(r.dev.Fill(buf.Span().Addr(), 0xee, 1, 1<<20))
		err := q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks)
		r.drive.Tamper(nil)
		got := r.out(buf.Span())
		switch {
		case err != nil && !errors.Is(err, nvme.ErrTimeout):
			t.Errorf("seed %d: %v", seed, err)
		case !guarded(got[8<<16:]):
			t.Errorf("seed %d: memory changed that no command was about", seed)
		}
		if err := q.Close(); err != nil && !errors.Is(err, nvme.ErrClosed) {
			t.Error(err)
		}
	}
	q := r.gpuQueue(5)
	r.check(q.Read(r.ctx, r.ns, buf, 0, 0, 8*pageBlocks))
	r.check(q.Close())
	r.check(buf.Close())
}

func TestGPUQueueRefuses(t *testing.T) {
	r := newMappedFixture(t, gpuSetup{}, nvme.Config{})
	for _, depth := range []int{-1, 0, 1024} {
		if _, err := r.c.NewGPUQueue(r.dev, depth); err == nil {
			t.Errorf("a queue of depth %d", depth)
		}
	}
	q := r.gpuQueue(1023)
	if q.Depth() != 1023 {
		t.Errorf("depth %d", q.Depth())
	}
	if _, err := r.c.NewGPUQueue(r.dev, 4); !errors.Is(err, nvme.ErrBusy) {
		t.Errorf("a second queue: %v", err)
	}
	buf, host := r.alloc(2<<16), second2(r.c.AllocHost(2<<16))
	gone := r.alloc(1 << 16)
	r.check(gone.Close())
	ended, cancel := context.WithCancel(r.ctx)
	cancel()
	for name, err := range map[string]error{
		"host memory": q.Read(r.ctx, r.ns, host, 0, 0, pageBlocks),
		"no memory":   q.Read(r.ctx, r.ns, nil, 0, 0, pageBlocks),
		"no blocks":   q.Read(r.ctx, r.ns, buf, 0, 0, 0),
		"half a page": q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks/2),
		"odd offset":  q.Write(r.ctx, r.ns, buf, 4096, 0, pageBlocks),
		"too much":    q.Write(r.ctx, r.ns, buf, 1<<16, 0, 2*pageBlocks),
		"far behind":  q.Write(r.ctx, r.ns, buf, 1<<63, 0, pageBlocks),
		"ended":       q.Write(ended, r.ns, buf, 0, 0, pageBlocks),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := q.Read(r.ctx, r.ns, gone, 0, 0, pageBlocks); !errors.Is(err, nvme.ErrClosed) {
		t.Errorf("memory that is not mapped any more: %v", err)
	}
	r.check(q.Read(r.ctx, r.ns, buf, 0, 0, pageBlocks))
	r.check(q.Close())
	r.check(buf.Close())
	// Where registers are reached by calls a GPU cannot ring.
	plain := newGPUFixture(t, gpuSetup{})
	if _, err := plain.c.NewGPUQueue(plain.dev, 4); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without a mapping of the registers: %v", err)
	}
}

func second2(b *nvme.Buffer, _ error) *nvme.Buffer { return b }
