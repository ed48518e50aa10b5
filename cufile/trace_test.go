package cufile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/route"
)

// traced are the sums of a trace.
type traced struct {
	bytes, host map[string]int64 // of transfers, by direction
	routes      map[string]int64
	pieces      map[string]int64 // bytes by kind
	micros      float64          // of transfers
	transfers   int
	requests    int
}

func readTrace(t *testing.T, r *trace.Recorder) traced {
	t.Helper()
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	var file struct {
		Events []struct {
			Name, Cat string
			Dur       float64
			Args      struct {
				Bytes     int64
				HostBytes int64            `json:"host_bytes"`
				Requests  int              `json:"requests"`
				By        map[string]int64 `json:"by_route"`
			}
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatal(err)
	}
	sums := traced{map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}, 0, 0, 0}
	for _, e := range file.Events {
		switch e.Cat {
		case "transfer":
			dir := e.Name[:4] // read or writ
			sums.bytes[dir] += e.Args.Bytes
			sums.host[dir] += e.Args.HostBytes
			for id, n := range e.Args.By {
				sums.routes[id] += n
			}
			sums.micros += e.Dur
			sums.transfers++
			sums.requests += e.Args.Requests
		case "piece":
			sums.pieces[e.Name] += e.Args.Bytes
		}
	}
	return sums
}

// The sums of a trace are those of the receipts, whatever the route, the size and the
// number of threads.
func TestTraceSumsAreTheReceipts(t *testing.T) {
	for _, id := range []route.ID{route.None, route.Ring, route.Host} {
		t.Run(id.String(), func(t *testing.T) {
			f := newFixture(t, softConfig(), 9<<20+123)
			file := f.open(os.O_RDWR)
			if id != route.None {
				if err := file.Require(0, id); err != nil {
					t.Skip(err)
				}
			}
			rec := trace.Start()
			defer rec.Stop()
			var sums [2]route.Receipt
			all := make(chan route.Receipt)
			var g errgroup.Group
			for k := range 4 {
				g.Go(func() error { return traceWork(f, file, k, all) })
			}
			var failed error
			go func() {
				failed = g.Wait()
				close(all)
			}()
			receipts := 0
			for r := range all {
				sums[r.Dir].Add(&r)
				receipts++
			}
			rec.Stop()
			if failed != nil {
				t.Fatal(failed)
			}
			got := readTrace(t, rec)
			for dir, name := range map[route.Dir]string{route.Read: "read", route.Write: "writ"} {
				if got.bytes[name] != sums[dir].Bytes || got.host[name] != sums[dir].Host.Bytes {
					t.Errorf("%v: the trace has %d bytes, %d of them in host memory, the receipts %v", dir, got.bytes[name], got.host[name], &sums[dir])
				}
			}
			for i, name := range route.Names() {
				if want := sums[0].By[i] + sums[1].By[i]; got.routes[name] != want {
					t.Errorf("%s: %d bytes in the trace, %d in the receipts", name, got.routes[name], want)
				}
			}
			if want := float64((sums[0].Time + sums[1].Time).Nanoseconds()) / 1e3; math.Abs(got.micros-want) > 1 {
				t.Errorf("%v µs in the trace, %v in the receipts", got.micros, want)
			}
			if got.requests != receipts || got.transfers != receipts {
				t.Errorf("%d transfers of %d requests, %d receipts", got.transfers, got.requests, receipts)
			}
			if id == route.Ring {
				ring := sums[0].Bytes + sums[1].Bytes
				if got.pieces["read"] != sums[route.Read].Bytes || got.pieces["write"] != sums[route.Write].Bytes || got.pieces["copy"] != ring {
					t.Errorf("pieces %v, receipts %v %v", got.pieces, &sums[0], &sums[1])
				}
			}
		})
	}
}

// traceWork reads and writes small and large ranges.
func traceWork(f *fixture, file *cufile.File, k int, all chan<- route.Receipt) error {
	const size = 2 << 20
	addr, err := f.dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	defer f.dev.Free(addr)
	for _, n := range []uint64{1, 4096, 70_000, size} {
		mem, off := gpu.Span{Base: addr, Len: n}, int64(k)*size
		r, err := file.ReadAt(context.Background(), mem, off)
		if err != nil {
			return err
		}
		all <- r
		if r, err = file.WriteAt(context.Background(), mem, off); err != nil {
			return err
		}
		all <- r
	}
	return nil
}

// A batch is one transfer of several requests.
func TestTraceOfABatch(t *testing.T) {
	f := newFixture(t, softConfig(), 1<<20)
	file := f.open(os.O_RDWR)
	if err := file.Require(0, route.Ring); err != nil {
		t.Skip(err)
	}
	addr, err := f.dev.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.dev.Free(addr)
	var reqs []cufile.Request
	total := int64(0)
	for i := range 100 {
		total += int64(4096 - i)
		reqs = append(reqs, cufile.Request{Dir: route.Read, File: file, Mem: gpu.Span{Base: addr, Off: uint64(i) * 4096, Len: uint64(4096 - i)}, Off: int64(i) * 8192})
	}
	rec := trace.Start()
	defer rec.Stop()
	if err := f.drv.Do(context.Background(), reqs, make([]route.Receipt, len(reqs))); err != nil {
		t.Fatal(err)
	}
	rec.Stop()
	got := readTrace(t, rec)
	if got.transfers != 1 || got.requests != 100 || got.bytes["read"] != total || got.pieces["read"] != total || got.pieces["copy"] != total {
		t.Errorf("%+v", got)
	}
}
