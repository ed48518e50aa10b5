package cufileapi

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-io/culvert/clib/internal/cmem"
)

func ptr(i int) cmem.Ptr { return cmem.Ptr(i) }

// A batch without workers: what was submitted waits.
func waitingBatch(n int) *batch {
	b := &batch{room: n, changed: make(chan struct{})}
	for i := range n {
		b.waiting = append(b.waiting, job{cookie: ptr(i)})
	}
	return b
}

// What has not begun is cancelled, and its events come; nothing is waited for.
func TestCancelledEntriesReportSo(t *testing.T) {
	b := waitingBatch(3)
	b.cancel()
	got := b.collect(3, 3, nil)
	if len(got) != 3 {
		t.Fatalf("%d events", len(got))
	}
	for i, e := range got {
		if e.Cookie != ptr(i) || e.Status != statusCanceled || e.Ret != 0 {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	b.end()
}

func TestCollectTimesOut(t *testing.T) {
	b := waitingBatch(2)
	b.events = append(b.events, ioEvents{Status: statusComplete})
	now := make(chan time.Time, 1)
	now <- time.Time{}
	if got := b.collect(2, 2, now); len(got) != 1 {
		t.Errorf("%d events when the time was up, want the one that was there", len(got))
	}
}

// Room is taken until the events are collected.
func TestBatchIsFullUntilCollected(t *testing.T) {
	b := waitingBatch(2)
	b.waiting, b.events, b.workers = b.waiting[:1], []ioEvents{{}}, batchWorkers
	if err := b.submit(nil, make([]job, 1)); err == nil {
		t.Error("a full batch took an entry")
	}
	b.collect(1, 1, nil)
	if err := b.submit(nil, make([]job, 1)); err != nil {
		t.Error(err)
	}
}

// Destroying a batch waits for the jobs that have begun.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitingBatch(1)
		if _, ok := b.take(); !ok {
			t.Fatal("no job")
		}
		var ended atomic.Bool
		go func() {
			b.end()
			ended.Store(true)
		}()
		synctest.Wait()
		if ended.Load() {
			t.Error("it ended while a job was at work")
		}
		b.give(ioEvents{})
		synctest.Wait()
		if !ended.Load() {
			t.Error("it did not end after the last job")
		}
	})
}
