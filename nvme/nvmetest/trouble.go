package nvmetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/nvme"
)

// testStatuses checks the statuses of commands that a controller must reject.
func testStatuses(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	end := r.ns.Blocks()
	for _, c := range []struct {
		name string
		run  func() error
		want error
	}{
		{"last block", func() error { return r.ns.Read(r.ctx, r.buf, 0, end-1, 1) }, nil},
		{"behind the end", func() error { return r.ns.Read(r.ctx, r.buf, 0, end, 1) }, nvme.StatusLBAOutOfRange},
		{"over the end", func() error { return r.ns.Read(r.ctx, r.buf, 0, end-1, 2) }, nvme.StatusLBAOutOfRange},
		{"far behind the end", func() error { return r.ns.Write(r.ctx, r.buf, 0, 1<<60, 1) }, nvme.StatusLBAOutOfRange},
		{"zeroes over the end", func() error { return r.ns.WriteZeroes(r.ctx, end-3, 4) }, nvme.StatusLBAOutOfRange},
	} {
		if err := c.run(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	var op *nvme.OpError
	if err := r.ns.Read(r.ctx, r.buf, 0, end-1, 2); !errors.As(err, &op) || op.LBA != end-1 || op.Blocks != 2 || op.NSID != r.ns.ID() || op.Op != "read" {
		t.Errorf("error does not name the command: %v", err)
	}
	r.check(r.ns.Read(r.ctx, r.buf, 0, 0, 1))
}

func testMediumError(t *testing.T, d Drive) {
	if d.BadRead == 0 {
		t.Skip("needs a drive with a block that cannot be read")
	}
	r := open(t, d, nvme.Config{})
	for _, c := range []struct{ lba, n uint64 }{{d.BadRead, 1}, {d.BadRead - 3, 8}} {
		if err := r.ns.Read(r.ctx, r.buf, 0, c.lba, c.n); !errors.Is(err, nvme.StatusUnrecoveredRead) {
			t.Errorf("blocks %d to %d: %v, want %v", c.lba, c.lba+c.n-1, err, nvme.StatusUnrecoveredRead)
		}
	}
	r.check(r.ns.Read(r.ctx, r.buf, 0, 0, 1))
}

// A detour is a transport that returns wrong addresses for memory of one size.
type detour struct {
	nvme.Transport
	size int
	by   func(pages []uint64)
}

func (d detour) MapHost(b []byte) ([]uint64, uint64, func() error, error) {
	pages, size, unmap, err := d.Transport.MapHost(b)
	if err == nil && len(b) == d.size {
		pages = append([]uint64(nil), pages...)
		d.by(pages)
	}
	return pages, size, unmap, err
}

// testNowhere uses unmapped addresses in commands.
func testNowhere(t *testing.T, d Drive) {
	const size = 6 * 4096
	r := open(t, Drive{noAudit: true, Open: func(t testing.TB) nvme.Transport {
		return detour{d.Open(t), size, func(p []uint64) {
			for i := range p {
				p[i] = 1<<38 + uint64(i)*4096
			}
		}}
	}}, nvme.Config{})
	r.write(0, 16, 9)
	want := bytes.Clone(r.buf.Bytes())
	bad := r.host(size)
	fill(bad.Bytes(), 10)
	before := bytes.Clone(bad.Bytes())
	for _, n := range []uint64{1, r.blocks(8192), r.blocks(size)} {
		for name, run := range map[string]func(context.Context, *nvme.Buffer, uint64, uint64, uint64) error{"read": r.ns.Read, "write": r.ns.Write} {
			if err := run(r.ctx, bad, 0, 0, n); !errors.Is(err, nvme.StatusDataTransferError) && !d.NoDataError {
				t.Errorf("%s of %d blocks to nowhere: %v, want %v", name, n, err, nvme.StatusDataTransferError)
			}
		}
	}
	if !bytes.Equal(bad.Bytes(), before) {
		t.Error("memory changed that was not mapped for the controller")
	}
	if !d.NoDataError {
		r.expect(0, 16, want)
	}
}

func testReset(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	r.write(0, 32, 4)
	want := bytes.Clone(r.buf.Bytes())
	for range 3 {
		r.check(r.c.Reset())
		r.expect(0, 32, want)
	}
}

// testResetInFlight resets while commands are in flight: each completes once, and
// the drive works afterwards.
func testResetInFlight(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	r.write(0, r.blocks(area), 21)
	want := bytes.Clone(r.buf.Bytes())
	q, err := r.c.NewQueue(32)
	r.check(err)
	for range 5 {
		var all sync.WaitGroup
		reqs := make([]nvme.Request, q.Depth())
		list := make([]*nvme.Request, len(reqs))
		size := min(64<<10, r.c.Info().MaxTransfer)
		n := uint32(r.blocks(size))
		for i := range reqs {
			reqs[i] = nvme.Request{Op: nvme.OpRead, NS: r.ns, LBA: uint64(i) * uint64(n), Blocks: n, Buf: r.buf, Off: uint64(i * size)}
			list[i] = &reqs[i]
		}
		if k, err := q.Submit(list...); k != len(reqs) {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := r.c.Reset(); err != nil {
				t.Error(err)
			}
		})
		for i := range reqs {
			err := q.Wait(r.ctx, &reqs[i])
			if err != nil && !errors.Is(err, nvme.ErrReset) {
				t.Errorf("command %d: %v", i, err)
			}
			off := int(reqs[i].Off)
			if err == nil && !bytes.Equal(r.buf.Bytes()[off:][:size], want[off:][:size]) {
				t.Errorf("command %d succeeded with wrong data", i)
			}
		}
		all.Wait()
		if got := q.Poll(make([]*nvme.Request, 8)); got != 0 {
			t.Errorf("%d requests completed twice", got)
		}
		r.expect(0, r.blocks(area), want)
	}
	if n := q.Strays(); n > 0 {
		t.Errorf("%d stray completions", n)
	}
}

// testQueues makes and closes queues, up to the limit of the controller.
func testQueues(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{Queues: 1})
	r.write(0, 8, 6)
	var qs []*nvme.Queue
	for range min(r.c.Info().Queues-1, 6) {
		q, err := r.c.NewQueue(4)
		r.check(err)
		qs = append(qs, q)
	}
	if len(qs) == r.c.Info().Queues-1 {
		if q, err := r.c.NewQueue(4); err == nil {
			t.Error("more queues than the controller has")
			r.check(q.Close())
		}
	}
	r.check(r.c.Reset())
	for _, q := range qs {
		one := nvme.Request{Op: nvme.OpRead, NS: r.ns, Blocks: 8, Buf: r.buf}
		r.check(second(q.Submit(&one)))
		r.check(q.Wait(r.ctx, &one))
		r.check(q.Close())
		r.is(q.Close(), nvme.ErrClosed, "closed twice")
		r.is(second(q.Submit(&one)), nvme.ErrClosed, "submit to a closed queue")
		if n := q.Poll(nil); n != 0 {
			t.Errorf("closed queue returned %d requests", n)
		}
	}
	q, err := r.c.NewQueue(4)
	r.check(err)
	r.check(q.Close())
}

// testCloseInFlight closes a queue with commands in flight.
func testCloseInFlight(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	q, err := r.c.NewQueue(16)
	r.check(err)
	reqs := make([]nvme.Request, q.Depth())
	size := min(64<<10, r.c.Info().MaxTransfer)
	for i := range reqs {
		reqs[i] = nvme.Request{Op: nvme.OpRead, NS: r.ns, Blocks: uint32(r.blocks(size)), Buf: r.buf, Off: uint64(i * size)}
		r.check(second(q.Submit(&reqs[i])))
	}
	r.is(r.buf.Close(), nvme.ErrBusy, "a buffer with commands in flight")
	r.check(q.Close())
	for i := range reqs {
		if !reqs[i].Done() {
			t.Errorf("command %d did not complete", i)
		}
		err := q.Wait(r.ctx, &reqs[i])
		if err != nil && !errors.Is(err, nvme.ErrClosed) && !errors.Is(err, nvme.StatusQueueDeleted) && !errors.Is(err, nvme.StatusAborted) {
			t.Errorf("command %d: %v", i, err)
		}
	}
	r.check(r.buf.Close())
}

// testReopen closes the controller, opens it again and reads the data.
func testReopen(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{})
	r.write(0, 64, 8)
	want := bytes.Clone(r.buf.Bytes()[:64*r.ns.BlockSize()])
	buf := r.buf
	r.check(r.c.Close())
	r.is(r.c.Close(), nvme.ErrClosed, "closed twice")
	r.is(r.ns.Read(r.ctx, buf, 0, 0, 1), nvme.ErrClosed, "read after close")
	r.is(r.c.Reset(), nvme.ErrClosed, "reset after close")
	r.is(second(r.c.AllocHost(4096)), nvme.ErrClosed, "map memory after close")
	r.is(buf.Close(), nvme.ErrClosed, "unmap memory after close")
	again := open(t, d, nvme.Config{Queues: 1, Depth: 2})
	again.expect(0, 64, want)
}

// testRefused makes requests that the driver itself must reject.
func testRefused(t *testing.T, d Drive) {
	r := open(t, d, nvme.Config{MaxTransfer: 64 << 10})
	q, err := r.c.NewQueue(4)
	r.check(err)
	small := r.host(4096)
	gone := r.host(4096)
	r.check(gone.Close())
	good := nvme.Request{Op: nvme.OpRead, NS: r.ns, Blocks: 1, Buf: small}
	for name, change := range map[string]func(*nvme.Request){
		"operation":     func(q *nvme.Request) { q.Op = 200 },
		"no namespace":  func(q *nvme.Request) { q.NS = nil },
		"no blocks":     func(q *nvme.Request) { q.Blocks = 0 },
		"many blocks":   func(q *nvme.Request) { q.Op, q.Blocks = nvme.OpWriteZeroes, 1<<16+1 },
		"no buffer":     func(q *nvme.Request) { q.Buf = nil },
		"closed buffer": func(q *nvme.Request) { q.Buf = gone },
		"odd offset":    func(q *nvme.Request) { q.Off = 2 },
		"behind":        func(q *nvme.Request) { q.Off = 4096 },
		"far behind":    func(q *nvme.Request) { q.Off = 1<<64 - 4 },
		"over the end":  func(q *nvme.Request) { q.Blocks = uint32(r.blocks(8192)) },
		"too large":     func(q *nvme.Request) { q.Buf, q.Blocks = r.buf, uint32(r.blocks(128<<10)) },
	} {
		req := nvme.Request{Op: good.Op, NS: good.NS, Blocks: good.Blocks, Buf: good.Buf}
		change(&req)
		if n, err := q.Submit(&req); n != 0 || err == nil {
			t.Errorf("%s: %d commands, %v", name, n, err)
		}
	}
	for name, err := range map[string]error{
		"no blocks":        r.ns.Read(r.ctx, small, 0, 0, 0),
		"too many":         r.ns.Read(r.ctx, small, 0, 0, 1<<60),
		"over the buffer":  r.ns.Read(r.ctx, small, 0, 0, r.blocks(8192)),
		"no buffer":        r.ns.Write(r.ctx, nil, 0, 0, 1),
		"host memory of 0": second(r.c.AllocHost(0)),
		"half a page":      second(r.c.MapHost(small.Bytes()[:2048])),
		"inside a page":    second(r.c.MapHost(r.buf.Bytes()[512:][:4096])),
		"queue of depth 0": second(r.c.NewQueue(0)),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	// The queue still works, and a request can be reused.
	for range 2 {
		r.check(second(q.Submit(&good)))
		r.check(q.Wait(r.ctx, &good))
	}
	if small.Span() != (gpu.Span{}) || small.Len() != 4096 {
		t.Errorf("%v, %d", small.Span(), small.Len())
	}
}

func second[T any](_ T, err error) error { return err }
