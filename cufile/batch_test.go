package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

func (f *fixture) batch(n int) *cufile.Batch {
	f.t.Helper()
	b, err := f.drv.NewBatch(n)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// A batch mixes files, directions and kinds of memory, and a request that fails fails
// alone.
func TestBatchMixes(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	one, two := f.open(os.O_RDWR), f.open(os.O_RDONLY)
	host, err := f.dev.Alloc(gpu.KindHost, 64<<10, 0)
	if err != nil {
		t.Fatal(err)
	}
	buf := f.buffer(256 << 10)
	b := f.batch(8)
	req := func(cookie string, h *cufile.File, dir route.Dir, mem gpu.Span, off int64) cufile.BatchRequest {
		return cufile.BatchRequest{Request: cufile.Request{File: h, Dir: dir, Mem: mem, Off: off}, Cookie: cookie}
	}
	src := f.alloc(4096)
	if err := f.dev.Fill(src, 0x5A, 1, 4096); err != nil {
		t.Fatal(err)
	}
	err = b.Submit(
		req("device", one, route.Read, buf.Span().Slice(0, 4096), 4096),
		req("host", two, route.Read, gpu.Span{Base: host, Len: 8192}, 0),
		req("bad", one, route.Read, gpu.Span{Base: buf.Span().Base, Len: 1 << 40}, 0),
		req("write", one, route.Write, gpu.Span{Base: src, Len: 4096}, 900<<10),
		req("read-only", two, route.Write, gpu.Span{Base: src, Len: 4096}, 0),
		req("end", two, route.Read, buf.Span().Slice(8192, 8192), 1<<20-100),
	)
	if err != nil {
		t.Fatal(err)
	}
	events := make([]cufile.Event, 8)
	n, err := b.Collect(context.Background(), 6, events)
	if n != 6 || err != nil {
		t.Fatal(n, err)
	}
	want := map[any]int64{"device": 4096, "host": 8192, "write": 4096, "end": 100, "bad": -1, "read-only": -1}
	for _, e := range events[:n] {
		bytes, ok := want[e.Cookie]
		delete(want, e.Cookie)
		if failed := bytes < 0; !ok || failed != (e.Err != nil) || failed != (e.Status == cufile.Failed) || !failed && e.Receipt.Bytes != bytes {
			t.Errorf("%v: %v, %d bytes, %v", e.Cookie, e.Status, e.Receipt.Bytes, e.Err)
		}
	}
	if got := f.gpuBytes(buf.Span().Slice(0, 4096)); !bytes.Equal(got, f.data[4096:8192]) {
		t.Error("wrong data in the GPU")
	}
	if !bytes.Equal(gpu.HostBytes(host, 8192), f.data[:8192]) {
		t.Error("wrong data in host memory")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("closed twice: %v", err)
	}
	if err := b.Submit(req("late", one, route.Read, buf.Span(), 0)); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("a closed batch: %v", err)
	}
}

func TestBatchLimits(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	h := f.open(os.O_RDONLY)
	size := f.drv.Properties().BatchSize
	if size != cufile.DefaultBatchSize {
		t.Errorf("batches have %d requests", size)
	}
	for _, n := range []int{-1, 0, size + 1} {
		if _, err := f.drv.NewBatch(n); !errors.Is(err, cufile.InvalidValue) {
			t.Errorf("a batch of %d: %v", n, err)
		}
	}
	b := f.batch(2)
	defer b.Close()
	q := cufile.BatchRequest{Request: cufile.Request{File: h, Mem: f.buffer(4096).Span()}}
	if err := b.Submit(q, q, q); !errors.Is(err, cufile.BatchFull) {
		t.Errorf("too many: %v", err)
	}
	bad := q
	bad.File = nil
	if err := b.Submit(q, bad); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("no file: %v", err)
	}
	if err := b.Submit(q, q); err != nil {
		t.Error(err)
	}
	if err := b.Submit(q); !errors.Is(err, cufile.BatchFull) {
		t.Errorf("full: %v", err)
	}
	events := make([]cufile.Event, 1)
	if _, err := b.Collect(context.Background(), 2, events); !errors.Is(err, cufile.InvalidValue) {
		t.Errorf("more than there is room for: %v", err)
	}
	if n, err := b.Collect(context.Background(), 1, events); n != 1 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	if err := b.Submit(q); err != nil {
		t.Errorf("a collected event leaves no room: %v", err)
	}
}

func TestConfiguredBatchSize(t *testing.T) {
	f := newFixture(t, softConfig(), 4096)
	if err := f.drv.Configure(cufile.Config{BatchSize: 8}); !errors.Is(err, cufile.DriverAlreadyOpen) {
		t.Errorf("open: %v", err)
	}
	if err := f.drv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.drv.Configure(cufile.Config{BatchSize: cufile.MaxBatchSize + 1}); !errors.Is(err, cufile.DriverInvalidProps) {
		t.Errorf("too large: %v", err)
	}
	if err := errors.Join(f.drv.Configure(cufile.Config{BatchSize: 8}), f.drv.Open()); err != nil {
		t.Fatal(err)
	}
	if n := f.drv.Properties().BatchSize; n != 8 {
		t.Errorf("batches have %d requests", n)
	}
	if _, err := f.drv.NewBatch(9); !errors.Is(err, cufile.InvalidValue) {
		t.Error(err)
	}
}

// Whatever is submitted, canceled and collected: each request ends once, and so does
// its event; what is accepted is what there is room for; and nothing touches memory
// after the end of its request.
func TestBatchesAgainstAModel(t *testing.T) {
	const slot, slots, room = 4096, 48, 16
	f := newFixture(t, softConfig(), slots*slot)
	h := f.open(os.O_RDWR)
	buf := f.buffer(slots * slot)
	rapid.Check(t, func(rt *rapid.T) {
		b := f.batch(room)
		defer b.Close() // also if rapid ends the attempt: the next one has the same memory
		var (
			next, held int // requests so far, and those that use room
			ended      [slots]atomic.Int32
			delivered  [slots]int
			events     = make([]cufile.Event, room)
		)
		collect := func(least int, timeout time.Duration) {
			n, err := b.CollectFor(timeout, least, events)
			if err != nil || n < min(least, held) && timeout < 0 {
				rt.Fatalf("%d events of at least %d, %v", n, least, err)
			}
			held -= n
			for _, e := range events[:n] {
				i := e.Cookie.(int)
				delivered[i]++
				if ok := i%7 != 6; e.Status != cufile.Canceled && ok != (e.Status == cufile.Complete) {
					rt.Errorf("request %d: %v, %v", i, e.Status, e.Err)
				}
				// Its memory is the caller's again.
				if err := f.dev.Fill(buf.Span().Addr()+gpu.Addr(i*slot), 0xEE, 1, slot); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"submit", "submit", "collect", "poll", "cancel"}).Draw(rt, "step") {
			case "submit":
				n := min(rapid.IntRange(1, room+1).Draw(rt, "requests"), slots-next)
				var reqs []cufile.BatchRequest
				for i := next; i < next+n; i++ {
					q := cufile.BatchRequest{Cookie: i, Done: func(*cufile.Event) { ended[i].Add(1) }}
					q.Request = cufile.Request{File: h, Mem: buf.Span().Slice(uint64(i)*slot, slot), Off: int64(i) * slot}
					if i%7 == 6 {
						q.Mem.Len = 1 << 40 // it fails
					}
					reqs = append(reqs, q)
				}
				err := b.Submit(reqs...)
				if full := held+n > room; full != errors.Is(err, cufile.BatchFull) || !full && err != nil {
					rt.Fatalf("%d requests with %d of %d: %v", n, held, room, err)
				}
				if err == nil {
					next, held = next+n, held+n
				}
			case "collect":
				collect(rapid.IntRange(0, room).Draw(rt, "least"), -1)
			case "poll":
				collect(rapid.IntRange(0, room).Draw(rt, "least"), 0)
			case "cancel":
				b.Cancel()
			}
		}
		closed := rapid.Bool().Draw(rt, "close early")
		if !closed {
			collect(held, -1)
		}
		if err := b.Close(); err != nil {
			rt.Error(err)
		}
		for i := range next {
			if n := ended[i].Load(); n != 1 {
				rt.Errorf("request %d ended %d times", i, n)
			}
			if n := delivered[i]; n > 1 || !closed && n != 1 {
				rt.Errorf("request %d has %d events", i, n)
			}
		}
		for i := range next {
			if delivered[i] == 0 {
				continue
			}
			if got := f.gpuBytes(buf.Span().Slice(uint64(i)*slot, slot)); !bytes.Equal(got, bytes.Repeat([]byte{0xEE}, slot)) {
				rt.Errorf("memory of request %d was touched after its event", i)
			}
		}
	})
}

// A caller that waits for all events without a timeout runs requests itself.
func TestCollectWorks(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	h, buf := f.open(os.O_RDONLY), f.buffer(1<<20)
	const n = 40
	b, err := f.drv.NewBatch(n)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cufile.WithoutWorkers(b)
	var reqs []cufile.BatchRequest
	for i := range n {
		reqs = append(reqs, cufile.BatchRequest{Request: cufile.Request{Dir: route.Read, File: h, Mem: buf.Span().Slice(uint64(i)*4096, 4096), Off: int64(i) * 4096}, Cookie: i})
	}
	if err := b.Submit(reqs...); err != nil {
		t.Fatal(err)
	}
	events := make([]cufile.Event, n)
	if got, err := b.CollectFor(0, n, events); got != 0 || err != nil {
		t.Errorf("with a timeout: %d, %v", got, err)
	}
	if got, err := b.Collect(context.Background(), n, events); got != n || err != nil {
		t.Fatalf("%d, %v", got, err)
	}
	for i := range events {
		if e := &events[i]; e.Status != cufile.Complete || e.Cookie != i {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

func TestStatusNames(t *testing.T) {
	if got := fmt.Sprint(cufile.Canceled, cufile.Complete, cufile.Failed, cufile.Status(3)); got != "canceled complete failed Status(0x3)" {
		t.Error(got)
	}
}
