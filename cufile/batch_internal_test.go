package cufile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// waitingBatch is a batch without workers, so that its requests wait.
func waitingBatch(n int) *Batch {
	b := &Batch{room: n, changed: make(chan struct{})}
	for i := range n {
		b.waiting = append(b.waiting, BatchRequest{Cookie: i})
	}
	return b
}

// Waiting requests are canceled, and their events arrive without delay.
func TestCancelledRequestsReportSo(t *testing.T) {
	b := waitingBatch(3)
	b.Cancel()
	got := make([]Event, 3)
	if n, err := b.Collect(context.Background(), 3, got); n != 3 || err != nil {
		t.Fatalf("%d events, %v", n, err)
	}
	for i, e := range got {
		if e.Cookie != i || e.Status != Canceled || e.Err != nil {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func TestCollectTimesOut(t *testing.T) {
	b := waitingBatch(2)
	b.events = append(b.events, Event{Status: Complete})
	if n, err := b.CollectFor(0, 2, make([]Event, 2)); n != 1 || err != nil {
		t.Errorf("%d events when the time was up, want the one that was there; %v", n, err)
	}
}

// Requests use room until their events are collected.
func TestBatchIsFullUntilCollected(t *testing.T) {
	b := waitingBatch(2)
	b.waiting, b.events, b.workers = b.waiting[:1], []Event{{}}, batchWorkers
	q := BatchRequest{Request: Request{File: new(File), Mem: gpu.Span{Base: 1}}}
	if err := b.Submit(q); !errors.Is(err, BatchFull) {
		t.Errorf("a full batch: %v", err)
	}
	b.Collect(context.Background(), 1, make([]Event, 1))
	if err := b.Submit(q); err != nil {
		t.Error(err)
	}
}

// Closing a batch waits for requests in flight.
func TestCloseWaitsForBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitingBatch(1)
		if reqs := b.take(); len(reqs) != 1 {
			t.Fatalf("%d requests", len(reqs))
		}
		var closed atomic.Bool
		go func() {
			b.Close()
			closed.Store(true)
		}()
		synctest.Wait()
		if closed.Load() {
			t.Error("it closed while a request was running")
		}
		b.deliver(make([]Event, 1))
		synctest.Wait()
		if !closed.Load() {
			t.Error("it did not close after the last request")
		}
	})
}

func TestGroup(t *testing.T) {
	f, g := new(File), new(File)
	of := func(f *File, dir route.Dir, sizes ...uint64) (reqs []BatchRequest) {
		for _, n := range sizes {
			reqs = append(reqs, BatchRequest{Request: Request{Dir: dir, File: f, Mem: gpu.Span{Len: n}}})
		}
		return reqs
	}
	for _, tt := range []struct {
		name string
		reqs []BatchRequest
		want int
	}{
		{"nothing", nil, 0},
		{"neighbours", of(f, route.Read, 4096, 0, 4096), 3},
		{"two files", slices.Concat(of(f, route.Read, 1, 1), of(g, route.Read, 1)), 2},
		{"two directions", slices.Concat(of(f, route.Read, 1), of(f, route.Write, 1)), 1},
		{"many", of(f, route.Read, make([]uint64, 100)...), groupEntries},
		{"full", of(f, route.Read, groupBytes/2, groupBytes/2, 1), 2},
		{"too much", of(f, route.Read, groupBytes/2, groupBytes/2+1), 1},
		{"large", of(f, route.Read, 1<<63, 1<<63), 1},
	} {
		if got := group(tt.reqs); got != tt.want {
			t.Errorf("%s: %d requests, want %d", tt.name, got, tt.want)
		}
	}
}

// A wild pointer, and any panic, fails its request.
func TestGuard(t *testing.T) {
	for _, tt := range []struct {
		fn   func() error
		want error
		text string
	}{
		{func() error { gpu.HostBytes(0xdead0000, 1)[0]++; return nil }, unix.EFAULT, "0xdead0000"},
		{func() error { panic("a mistake") }, unix.EFAULT, "a mistake"},
		{func() error { return unix.EIO }, unix.EIO, ""},
	} {
		if err := guard(tt.fn); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%v, want %v with %q", err, tt.want, tt.text)
		}
	}
	if err := guard(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
