package cufile_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/route"
)

// Receipts are summed by file and by route, for the file's owner and for whoever
// reads the process's segment.
func TestStats(t *testing.T) {
	f := newFixture(t, softConfig(), 100_000)
	h, buf := f.open(os.O_RDWR), f.buffer(1<<20)
	if h.Stats().Reads != 0 {
		t.Errorf("before the first transfer: %+v", h.Stats())
	}
	if err := h.Require(0, route.Ring); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			for range 50 {
				if _, err := h.ReadAt(context.Background(), buf.Span().Slice(i*4096, 4096), 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := h.Require(0, route.Host); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	spans := []gpu.Span{buf.Span().Slice(0, 1000), buf.Span().Slice(2000, 500)}
	if _, err := h.WritevAt(ctx, spans, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := h.ReadAt(ctx, gpu.Span{Base: 4096, Len: 10}, 0); err == nil {
		t.Fatal("a read to nowhere succeeded")
	}
	check := func(s cufile.Stats) {
		t.Helper()
		if s.Reads != 401 || s.ReadBytes != 400*4096 || s.Writes != 2 || s.WriteBytes != 1500 || s.Errors != 1 || s.HostBytes != 400*4096+1500 || s.Time <= 0 {
			t.Errorf("%+v", s)
		}
		by := map[route.ID]cufile.RouteStats{}
		for _, r := range s.Routes {
			by[r.Route] = r
		}
		if by[route.Ring].ReadBytes != 400*4096 || by[route.Ring].Reads != 400 || by[route.Host].Writes != 2 || by[route.Host].WriteBytes != 1500 || len(by) > 3 {
			t.Errorf("by route: %+v", by)
		}
	}
	check(h.Stats())
	f.checkSegment(true)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	check(h.Stats())
	f.checkSegment(false)
	for range 80 { // more files than there is room for: the old ones give way
		g := f.open(os.O_RDONLY)
		if _, err := g.ReadAt(ctx, spans[0], 0); err != nil {
			t.Fatal(err)
		}
		g.Close()
	}
	check(h.Stats())
}

// checkSegment looks the file up in this process's segment.
func (f *fixture) checkSegment(open bool) {
	f.t.Helper()
	s, err := stats.Read(os.Getpid())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, file := range s.Files {
		if file.Name != f.path {
			continue
		}
		ops, n := file.Totals.Sum(false)
		if ops != 401 || n != 400*4096 || file.Open != open || s.Routes[route.Ring] != "ring" || file.Totals.Ops[0][route.Ring] != 400 {
			f.t.Errorf("%d reads of %d bytes, open %v: %+v", ops, n, file.Open, file.Totals)
		}
		if all, _ := s.Totals.Sum(false); all < ops {
			f.t.Errorf("the process has %d reads, the file %d", all, ops)
		}
		return
	}
	f.t.Errorf("%s is not among the %d files of the segment", f.path, len(s.Files))
}
