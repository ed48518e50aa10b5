package ladder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A directMemory is a DirectSource in memory, whose device copies by the GPU's driver.
type directMemory struct {
	memorySource
	id     route.ID
	block  uint64
	dev    gpu.Device
	noMap  error // of Map
	noMove error // of Move
	skip   uint64

	mu     sync.Mutex
	mapped []gpu.Span
	closes []func()
	moved  int64
}

func (d *directMemory) Route() route.ID                   { return d.id }
func (d *directMemory) Path() string                      { return "memory" }
func (d *directMemory) Alignment() (block, memory uint64) { return d.block, 4 }
func (d *directMemory) OnClose(f func())                  { d.closes = append(d.closes, f) }

// Map reaches all but the first and the last skip bytes.
func (d *directMemory) Map(dev gpu.Device, buf gpu.Span) (gpu.Span, error) {
	if d.noMap != nil {
		return gpu.Span{}, d.noMap
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dev, d.mapped = dev, append(d.mapped, buf)
	return buf.Slice(d.skip, buf.Len-2*d.skip), nil
}

func (d *directMemory) Unmap(buf gpu.Span) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.mapped)
	if d.mapped = slices.DeleteFunc(d.mapped, func(s gpu.Span) bool { return s == buf }); len(d.mapped) != n-1 {
		return fmt.Errorf("%v is not mapped", buf)
	}
	return nil
}

func (d *directMemory) Move(ctx context.Context, dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	if err := errors.Join(ctx.Err(), d.noMove); err != nil {
		return 0, err
	}
	if (uint64(off)|mem.Len)%max(d.block, 1) != 0 || uint64(mem.Addr())%4 != 0 {
		return 0, fmt.Errorf("%d bytes at %d, address %v: not aligned", mem.Len, off, mem.Addr())
	}
	d.moved += int64(mem.Len)
	part := d.memorySource[off : off+int64(mem.Len)]
	if dir == route.Write {
		return int64(mem.Len), d.dev.CopyOut(part, mem.Addr())
	}
	return int64(mem.Len), d.dev.CopyIn(mem.Addr(), part)
}

// sourceFixture is a ladder, and a source of 1 MiB in blocks of 512 bytes.
func sourceFixture(t *testing.T, id route.ID) (*fixture, *directMemory) {
	w := newFixture(t)
	s := &directMemory{memorySource: noisy(1<<20, 9), id: id, block: 512}
	w.src = s
	return w, s
}

func (w *fixture) move(p *Plan, dir route.Dir, off int64, mem gpu.Span) (route.Receipt, error) {
	res := make([]route.Receipt, 1)
	err := p.Run(context.Background(), []Op{{Dir: dir, Src: w.src, Off: off, Mem: mem, Kind: gpu.KindDevice, Buf: always{}}}, res)
	return res[0], err
}

// The device of a source moves whole blocks, in memory that it reaches; the rest goes
// through host memory. Bytes are right at every offset, and only those change.
func TestSourceRoute(t *testing.T) {
	for _, c := range []struct {
		what      string
		id        route.ID
		skip      uint64
		off, at   uint64
		n         uint64
		ends      int64 // bytes through host memory
		declined  string
		beyondEnd uint64
	}{
		{what: "aligned", id: route.NVMe, off: 512, at: 4096, n: 64 << 10},
		{what: "rdma", id: route.RDMA, off: 512, at: 4096, n: 64 << 10},
		{what: "unaligned", id: route.NVMe, off: 100, at: 400, n: 5000, ends: 412 + 492},
		{what: "one block inside", id: route.NVMe, off: 500, at: 500, n: 600, ends: 12 + 76},
		{what: "no block", id: route.NVMe, off: 100, at: 400, n: 400, ends: 400, declined: "alignment"},
		{what: "odd address", id: route.NVMe, off: 0, at: 3, n: 512, ends: 512, declined: "alignment"},
		{what: "partly reached", id: route.NVMe, skip: 64 << 10, off: 0, at: 0, n: 1 << 20, ends: 128 << 10},
		{what: "not reached", id: route.NVMe, skip: 64 << 10, off: 0, at: 0, n: 32 << 10, ends: 32 << 10, declined: "buffer"},
		{what: "end", id: route.NVMe, off: 1<<20 - 1024, at: 0, n: 1024, beyondEnd: 700},
	} {
		t.Run(c.what, func(t *testing.T) {
			w, s := sourceFixture(t, c.id)
			s.skip = c.skip
			p := w.ladder.Plan(s)
			if p.Best() != c.id {
				t.Fatalf("the best route is %v", p.Best())
			}
			was := noisy(1<<20, 7)
			check(t, w.device.CopyIn(w.mem.Base, was))
			r, err := w.move(p, route.Read, int64(c.off), w.mem.Slice(c.at, c.n+c.beyondEnd))
			if err != nil || r.Bytes != int64(c.n) || r.By[c.id] != int64(c.n)-c.ends || r.Host.Bytes != c.ends {
				t.Errorf("%v, %v", &r, err)
			}
			if d := r.Declined[c.id]; (d != nil) != (c.declined != "") || d != nil && d.Test != c.declined {
				t.Errorf("declined: %v", d)
			}
			want := bytes.Clone(was)
			copy(want[c.at:], s.memorySource[c.off:c.off+c.n])
			got := make([]byte, len(want))
			check(t, w.device.CopyOut(got, w.mem.Base))
			if !bytes.Equal(got, want) {
				t.Error("GPU memory has other bytes")
			}
			data := bytes.Clone(s.memorySource)
			check(t, w.device.CopyIn(w.mem.Base, was))
			r, err = w.move(p, route.Write, int64(c.off), w.mem.Slice(c.at, c.n))
			if err != nil || r.Bytes != int64(c.n) || r.By[c.id] != int64(c.n)-c.ends {
				t.Errorf("%v, %v", &r, err)
			}
			copy(data[c.off:], was[c.at:c.at+c.n])
			if !bytes.Equal(s.memorySource, data) {
				t.Error("the source has other bytes")
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A required route takes whole blocks only, and the error says why.
func TestSourceRouteRequired(t *testing.T) {
	w, s := sourceFixture(t, route.NVMe)
	only, err := w.ladder.Plan(s).Only(route.NVMe)
	check(t, err)
	if r, err := w.move(only, route.Read, 512, w.mem.Slice(0, 1024)); err != nil || r.Host.Bytes != 0 {
		t.Errorf("%v, %v", &r, err)
	}
	if _, err := w.move(only, route.Read, 100, w.mem.Slice(0, 1024)); err == nil || !strings.Contains(err.Error(), "whole blocks") {
		t.Error(err)
	}
	s.noMove = errors.New("the drive is on fire")
	if _, err := w.move(only, route.Read, 512, w.mem.Slice(0, 1024)); !errors.Is(err, s.noMove) {
		t.Error(err)
	}
	if _, err := w.ladder.Plan(s).Only(route.RDMA); err == nil || !strings.Contains(err.Error(), "rdma: source:") {
		t.Error(err)
	}
	if _, err := w.ladder.Plan(memorySource(nil)).Only(route.NVMe); err == nil || !strings.Contains(err.Error(), "nvme: source:") {
		t.Error(err)
	}
}

// What the device cannot do, the next route does, and the receipt says why. Whether the
// device reaches the GPU, Try finds out.
func TestSourceRouteDeclined(t *testing.T) {
	w, s := sourceFixture(t, route.RDMA)
	p := w.ladder.Plan(s)
	s.noMove = errors.New("the cable is out")
	r, err := w.move(p, route.Read, 0, w.mem.Slice(0, 8192))
	if err != nil || r.Route != route.Ring || r.Declined[route.RDMA] == nil || r.Declined[route.RDMA].Test != "transfer" {
		t.Errorf("%v, %v", &r, err)
	}
	s.noMove = nil
	if r, err = w.move(p, route.Read, 0, w.mem.Slice(0, 8192)); err != nil || r.Route != route.RDMA {
		t.Errorf("not tried again: %v, %v", &r, err)
	}
	if d := p.Try(s); d.Best() != route.RDMA {
		t.Error("Try has declined a device that works")
	}
	if len(s.mapped) != 1 {
		t.Errorf("%d buffers are mapped, want 1", len(s.mapped))
	}
	w, s = sourceFixture(t, route.RDMA)
	s.noMap = errors.New("no peer memory")
	p = w.ladder.Plan(s)
	r, err = w.move(p, route.Write, 0, w.mem.Slice(0, 8192))
	if d := r.Declined[route.RDMA]; err != nil || r.Route != route.Ring || d == nil || d.Test != "registration" || d.Fix == "" {
		t.Errorf("%v, %v", &r, err)
	}
	if _, err := p.Try(s).Only(route.RDMA); err == nil || !strings.Contains(err.Error(), "no peer memory") {
		t.Error(err)
	}
}

// A buffer is mapped once for a source, and not longer than either of them lives. An op
// in a stream maps nothing.
func TestSourceRouteMappings(t *testing.T) {
	w, s := sourceFixture(t, route.NVMe)
	p := w.ladder.Plan(s)
	o := Op{Src: s, Mem: w.mem.Slice(0, 4096), Kind: gpu.KindDevice, Buf: always{}, InStream: true}
	res := make([]route.Receipt, 1)
	if err := p.Run(context.Background(), []Op{o}, res); err != nil || res[0].Route != route.Ring || len(s.mapped) != 0 {
		t.Errorf("in a stream: %v, %v", &res[0], err)
	}
	for range 2 {
		if r, err := w.move(p, route.Read, 0, w.mem.Slice(0, 4096)); err != nil || r.Route != route.NVMe || len(s.mapped) != 1 {
			t.Fatalf("%v, %v, %d mapped", &r, err, len(s.mapped))
		}
	}
	w.ladder.Deregister(w.mem)
	if len(s.mapped) != 0 {
		t.Error("a deregistered buffer is mapped")
	}
	if r, err := w.move(p, route.Read, 0, w.mem.Slice(0, 4096)); err != nil || r.Route == route.NVMe {
		t.Errorf("by a deregistered buffer: %v, %v", &r, err)
	}
	w.ladder.Register(w.mem, gpu.KindDevice)
	if _, err := w.move(p, route.Read, 0, w.mem.Slice(0, 4096)); err != nil || len(s.mapped) != 1 {
		t.Fatal(err, s.mapped)
	}
	for _, f := range s.closes {
		f()
	}
	if len(s.mapped) != 0 {
		t.Error("a closed source has mapped memory")
	}
}

// Cancelled transfers end with the context's error, and no other route takes them.
func TestSourceRouteCancelled(t *testing.T) {
	w, s := sourceFixture(t, route.NVMe)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := w.ladder.Plan(s).Run(ctx, []Op{w.op(4096)}, make([]route.Receipt, 1))
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
