package cufileapi

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

func ptr(i int) cmem.Ptr { return cmem.Ptr(i) }

// waitingBatch is a batch without workers, so that its entries wait.
func waitingBatch(n int) *batch {
	b := &batch{room: n, changed: make(chan struct{})}
	for i := range n {
		b.waiting = append(b.waiting, job{cookie: ptr(i)})
	}
	return b
}

// Waiting entries are canceled, and their events arrive without delay.
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

// Entries use room until their events are collected.
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

// Destroying a batch waits for jobs in flight.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitingBatch(1)
		if jobs := b.take(); len(jobs) != 1 {
			t.Fatalf("%d jobs", len(jobs))
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
		b.deliver(make([]ioEvents, 1))
		synctest.Wait()
		if !ended.Load() {
			t.Error("it did not end after the last job")
		}
	})
}

func TestGroup(t *testing.T) {
	f, g := new(cufile.File), new(cufile.File)
	of := func(f *cufile.File, dir route.Dir, sizes ...uint64) (jobs []job) {
		for _, n := range sizes {
			jobs = append(jobs, job{Request: cufile.Request{Dir: dir, File: f, Mem: gpu.Span{Len: n}}})
		}
		return jobs
	}
	for _, tt := range []struct {
		name string
		jobs []job
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
		if got := group(tt.jobs); got != tt.want {
			t.Errorf("%s: %d entries, want %d", tt.name, got, tt.want)
		}
	}
}

// A wild pointer, and any panic, fails its entry.
func TestGuard(t *testing.T) {
	for _, tt := range []struct {
		fn   func() error
		want error
		text string
	}{
		{func() error { cmem.Probe(0xdead0000); return nil }, unix.EFAULT, "0xdead0000"},
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
