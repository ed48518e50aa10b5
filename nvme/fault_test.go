package nvme_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	"github.com/culvert-io/culvert/nvme"
)

// TestStalledCommandIsAborted has the controller sit on a command: it is
// aborted, and the others do not notice.
func TestStalledCommandIsAborted(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := newFixture(t, nvme.Config{Timeout: patience}, nil)
	r.drive.Stall(1)
	list := r.reads(1)
	r.submit(list)
	r.parked(1)
	more := r.reads(8)
	r.submit(more)
	for _, q := range more {
		r.check(r.q.Wait(r.ctx, q))
	}
	if err := r.q.Wait(r.ctx, list[0]); !errors.Is(err, nvme.StatusAborted) {
		t.Errorf("%v, want %v", err, nvme.StatusAborted)
	}
	if n := r.c.Resets(); n != 0 {
		t.Errorf("the controller was reset %d times", n)
	}
	r.works()
}

// TestLostCompletion has a completion vanish: nothing but a reset helps, after
// which every command is answered.
func TestLostCompletion(t *testing.T) {
	for _, poll := range []bool{false, true} {
		t.Run(fmt.Sprintf("poll=%v", poll), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := newFixture(t, nvme.Config{Timeout: soon, Poll: poll}, nil)
			r.lose(2)
			list := r.reads(10)
			r.submit(list)
			lost := 0
			for _, q := range list {
				err := r.q.Wait(r.ctx, q)
				if err == nil {
					continue
				}
				lost++
				if !errors.Is(err, nvme.ErrReset) || !errors.Is(err, nvme.ErrTimeout) {
					t.Errorf("%v, want %v for %v", err, nvme.ErrReset, nvme.ErrTimeout)
				}
			}
			if lost < 2 || r.c.Resets() == 0 {
				t.Errorf("%d commands failed, %d resets", lost, r.c.Resets())
			}
			r.works()
		})
	}
}

// TestPollAlone recovers without anybody who waits: a request that the reset
// answers is handed out like the others.
func TestPollAlone(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := newFixture(t, nvme.Config{Timeout: soon}, nil)
	r.lose(1)
	list := r.reads(3)
	r.submit(list)
	done := make([]*nvme.Request, 2)
	answers := map[*nvme.Request]int{}
	for len(answers) < len(list) {
		for _, q := range done[:r.q.Poll(done)] {
			answers[q]++
		}
		time.Sleep(time.Millisecond)
	}
	for i, q := range list {
		if !q.Done() || answers[q] != 1 {
			t.Errorf("request %d was handed out %d times", i, answers[q])
		}
	}
	if r.c.Resets() == 0 {
		t.Error("a completion was lost and the controller not reset")
	}
	if n, err := r.q.Reap(r.ctx, done); n != 0 || err != nvme.ErrIdle {
		t.Errorf("reap of nothing: %d, %v", n, err)
	}
	r.works()
}

// TestReapBesideWait has one goroutine wait for a command that is held up while
// another reaps.
func TestReapBesideWait(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	r.drive.Stall(1)
	held := r.reads(1)
	r.submit(held)
	r.parked(1)
	ctx, cancel := context.WithCancel(r.ctx)
	var all sync.WaitGroup
	all.Go(func() {
		if err := r.q.Wait(ctx, held[0]); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	done := make([]*nvme.Request, 4)
	for range 50 {
		list := r.reads(4)
		r.submit(list)
		for n := 0; n < 4; {
			k, err := r.q.Reap(r.ctx, done)
			r.check(err)
			n += k
		}
	}
	if _, err := r.q.Submit(held[0]); !errors.Is(err, nvme.ErrBusy) {
		t.Errorf("a request that is in flight: %v", err)
	}
	cancel()
	all.Wait()
	// One that was answered and not taken yet is taken by its next use, in the
	// same queue.
	r.submit(held)
	for !held[0].Done() {
		r.q.Poll(nil)
	}
	other, err := r.c.NewQueue(2)
	r.check(err)
	if _, err := other.Submit(held[0]); !errors.Is(err, nvme.ErrBusy) {
		t.Errorf("a request that another queue still has: %v", err)
	}
	if err := other.Wait(r.ctx, held[0]); err == nil {
		t.Error("a request that another queue has was waited for")
	}
	r.submit(held)
	r.check(r.q.Wait(r.ctx, held[0]))
	if n, err := other.Submit(held[0]); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	r.check(other.Wait(r.ctx, held[0]))
}

// A countdown is a context that ends when it has been looked at so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelledTransferStops: commands that were answered before anybody waited
// for them do not keep a long transfer going.
func TestCancelledTransferStops(t *testing.T) {
	r := newFixture(t, nvme.Config{MaxTransfer: 4096}, nil)
	for _, looks := range []int{0, 3} {
		mem := r.buf.Bytes()
		for i := range mem {
			mem[i] = 0xA5
		}
		blocks := r.buf.Len() / uint64(r.ns.BlockSize())
		err := r.ns.Read(&countdown{r.ctx, looks}, r.buf, 0, 0, blocks)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d looks: %v", looks, err)
		}
		if moved := bytes.IndexByte(mem, 0xA5); moved > looks*4096 {
			t.Errorf("after %d looks %d bytes were moved", looks, moved)
		}
	}
}

func TestBytesOfAClosedBuffer(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	b, err := r.c.AllocHost(4096)
	r.check(err)
	if len(b.Bytes()) != 4096 {
		t.Errorf("%d bytes", len(b.Bytes()))
	}
	r.check(b.Close())
	if b.Bytes() != nil {
		t.Error("a closed buffer shows memory that is unmapped")
	}
}

func TestCancelledContext(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	r.drive.Stall(2)
	ctx, cancel := context.WithCancel(r.ctx)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			err := r.ns.Read(ctx, r.buf, uint64(i)*4096, 0, 8)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, nvme.StatusAborted) {
				t.Errorf("%v, want %v and %v", err, context.Canceled, nvme.StatusAborted)
			}
		})
	}
	r.parked(2)
	cancel()
	all.Wait()
	if n := r.c.Resets(); n != 0 {
		t.Errorf("the controller was reset %d times", n)
	}
	// A context that has ended starts nothing that it would have to wait for.
	if err := r.ns.Read(ctx, r.buf, 0, 0, 8); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.works()
}

// TestFatalError has the controller break with commands in flight, in several
// queues.
func TestFatalError(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	r.drive.Stall(6)
	list := r.reads(4)
	r.submit(list)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			if err := r.ns.Read(r.ctx, r.buf, uint64(8+i)*4096, 0, 8); !errors.Is(err, nvme.ErrReset) || !errors.Is(err, nvme.ErrFatal) {
				t.Errorf("%v, want %v for %v", err, nvme.ErrReset, nvme.ErrFatal)
			}
		})
	}
	r.parked(6)
	r.drive.Fail()
	for _, q := range list {
		if err := r.q.Wait(r.ctx, q); !errors.Is(err, nvme.ErrReset) || !errors.Is(err, nvme.ErrFatal) {
			t.Errorf("%v, want %v for %v", err, nvme.ErrReset, nvme.ErrFatal)
		}
	}
	all.Wait()
	if n := r.c.Resets(); n != 1 {
		t.Errorf("the controller was reset %d times, want once for all who noticed", n)
	}
	r.works()
}

// TestRemoval takes the drive out with commands in flight.
func TestRemoval(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	r.works()
	r.drive.Stall(4)
	list := r.reads(4)
	r.submit(list)
	r.parked(4)
	r.drive.Unplug()
	for _, q := range list {
		if err := r.q.Wait(r.ctx, q); !errors.Is(err, nvme.ErrRemoved) {
			t.Errorf("%v, want %v", err, nvme.ErrRemoved)
		}
	}
	if err := r.c.Err(); !errors.Is(err, nvme.ErrRemoved) {
		t.Errorf("the controller says %v", err)
	}
	for name, err := range map[string]error{
		"read":  r.ns.Read(r.ctx, r.buf, 0, 0, 8),
		"flush": r.ns.Flush(r.ctx),
		"reset": r.c.Reset(),
		"queue": second(r.c.NewQueue(3)),
	} {
		if !errors.Is(err, nvme.ErrRemoved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.check(r.buf.Close())
	r.check(r.c.Close())
}

func second[T any](_ T, err error) error { return err }

// impatient is a transport whose controller promises to be quick.
type impatient struct {
	nvme.Transport
	noReset bool
}

func (i impatient) Load64(off uint64) uint64 {
	v := i.Transport.Load64(off)
	if off == abi.REG_CAP {
		v &^= 0xff << abi.CAP_TO_SHIFT
	}
	return v
}

func (i impatient) Reset() error {
	if i.noReset {
		return errors.ErrUnsupported
	}
	return i.Transport.Reset()
}

// TestHang has the controller ignore even CC: it takes a function level reset,
// and without one the controller is given up.
func TestHang(t *testing.T) {
	for _, noReset := range []bool{false, true} {
		t.Run(fmt.Sprintf("noReset=%v", noReset), func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := newFixture(t, nvme.Config{Timeout: soon}, func(tr nvme.Transport) nvme.Transport { return impatient{tr, noReset} })
			r.drive.Hang()
			list := r.reads(4)
			r.submit(list)
			for _, q := range list {
				if err := r.q.Wait(r.ctx, q); !errors.Is(err, nvme.ErrTimeout) {
					t.Errorf("%v, want %v", err, nvme.ErrTimeout)
				}
			}
			if !noReset {
				r.works()
				return
			}
			if err := r.c.Err(); !errors.Is(err, nvme.ErrTimeout) || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("the controller says %v", err)
			}
			if err := r.ns.Flush(r.ctx); !errors.Is(err, nvme.ErrTimeout) {
				t.Errorf("flush: %v", err)
			}
			r.check(r.drive.Reset()) // so that the machine can be closed
		})
	}
}

// TestFullQueueWaits has more callers than a queue has room for.
func TestFullQueueWaits(t *testing.T) {
	r := newFixture(t, nvme.Config{Queues: 1, Depth: 2}, nil)
	r.drive.Stall(2)
	ctx, cancel := context.WithCancel(r.ctx)
	var stalled, others sync.WaitGroup
	for range 2 {
		stalled.Go(func() { _ = r.ns.Flush(ctx) })
	}
	r.parked(2)
	for i := range 6 {
		others.Go(func() {
			if err := r.ns.Read(r.ctx, r.buf, uint64(i)*4096, 0, 8); err != nil {
				t.Error(err)
			}
		})
	}
	short, stop := context.WithTimeout(r.ctx, soon)
	defer stop()
	if err := r.ns.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no room, and the context ends: %v", err)
	}
	cancel()
	stalled.Wait()
	others.Wait()
	r.works()
}

// TestSubmitDuringReset has callers who go on while the controller is reset
// again and again.
func TestSubmitDuringReset(t *testing.T) {
	r := newFixture(t, nvme.Config{}, nil)
	var all sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := r.ns.Read(r.ctx, r.buf, uint64(w)*8192, 0, 16); err != nil && !errors.Is(err, nvme.ErrReset) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			q, err := r.c.NewQueue(3)
			if err != nil {
				t.Error(err)
				return
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 20 {
		r.check(r.c.Reset())
	}
	close(stop)
	all.Wait()
	if n := r.c.Resets(); n != 20 {
		t.Errorf("%d resets, want 20", n)
	}
	r.works()
}

// TestNoAllocations counts allocations of a command.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	r := newFixture(t, nvme.Config{}, nil)
	list, done := r.reads(8), make([]*nvme.Request, 8)
	if n := testing.AllocsPerRun(200, func() {
		r.submit(list)
		for left := 8; left > 0; {
			n, err := r.q.Reap(r.ctx, done)
			r.check(err)
			left -= n
		}
	}); n >= 1 {
		t.Errorf("8 commands allocate %.1f times", n)
	}
	if n := testing.AllocsPerRun(200, func() { r.check(r.ns.Read(r.ctx, r.buf, 0, 0, 64)) }); n >= 1 {
		t.Errorf("a read allocates %.1f times", n)
	}
}
