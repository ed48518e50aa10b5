package ring

import (
	"errors"
	"runtime"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/internal/uring"
)

const (
	// minScatter is the number of parts from which one copy and a kernel cost
	// less than a copy for each part.
	minScatter = 4
	// minBatch is the number of parts from which reading them by one system
	// call pays.
	minUring = 8
	// batchDepth is how many reads a lane has under way.
	uringDepth = 64
)

// packers are the kernels that put gathered requests in place.
type coalesceKernels struct {
	module          gpu.Module
	gather, scatter gpu.Func
}

func loadCoalesceKernels(dev gpu.Device) (*coalesceKernels, error) {
	m, err := dev.Load(kernels.PTX)
	if err != nil {
		return nil, err
	}
	k := &coalesceKernels{module: m}
	if k.gather, err = m.Func("culvert_gather"); err == nil {
		k.scatter, err = m.Func("culvert_scatter")
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return k, nil
}

func (r *Ring) coalesceKernels() *coalesceKernels {
	r.kernelsOnce.Do(func() {
		var err error
		if r.kernels, err = loadCoalesceKernels(r.dev); err != nil {
			r.log.Warn("ring: no kernels for gathered requests, they are copied one by one", "error", err)
		}
	})
	return r.kernels
}

// packed launches the copies of a slot as one copy and a kernel, or reports
// that it could not and did nothing.
func (l *pipeline) launchCoalesced(s *slot) bool {
	k := l.r.coalesceKernels()
	if k == nil || !l.r.owns(s) || !l.stage() {
		return false
	}
	last := &s.segments[len(s.segments)-1]
	end := int(up(int64(last.at+last.n), 8))
	table := s.mem[end:end]
	for i := range s.segments {
		p := &s.segments[i]
		addr := uint64(s.op.reqs[p.req].Addr)
		if s.write {
			table = kernels.Piece{Src: addr, Dst: uint64(p.at), Len: uint64(p.n)}.Append(table)
		} else {
			table = kernels.Piece{Src: uint64(p.at), Dst: addr, Len: uint64(p.got)}.Append(table)
		}
	}
	s.bytes = int64(end + len(table))
	if err := l.copyCoalesced(k, s, uint64(end), uint64(len(table))); err != nil {
		s.allFailed(errors.Join(err, l.stream.Synchronize()))
		return true
	}
	l.record(s)
	return true
}

// pack moves end bytes of data, with the table behind them.
func (l *pipeline) copyCoalesced(k *coalesceKernels, s *slot, end, table uint64) error {
	at := l.staging + gpu.Addr(end)
	grid, block := gpu.Dim{X: uint32(len(s.segments))}, gpu.Dim{X: 256}
	if !s.write {
		if err := l.stream.Copy(l.staging, s.addr, end+table); err != nil {
			return err
		}
		return l.stream.Launch(k.scatter, grid, block, l.staging, at, uint64(len(s.segments)))
	}
	if err := l.stream.Copy(at, s.addr+gpu.Addr(end), table); err != nil {
		return err
	}
	if err := l.stream.Launch(k.gather, grid, block, l.staging, at, uint64(len(s.segments))); err != nil {
		return err
	}
	return l.stream.Copy(s.addr, l.staging, end)
}

// owns reports whether all parts are memory of this GPU. A copy of anything
// else the driver refuses, or manages; a kernel would fault, and take the
// context with it.
func (r *Ring) owns(s *slot) bool {
	var last gpu.Pointer
	for i := range s.segments {
		q := &s.op.reqs[s.segments[i].req]
		if last.Contains(q.Addr, uint64(q.Len)) {
			continue
		}
		var err error
		last, err = r.dev.Pointer(q.Addr)
		if err != nil || !last.Kind.OnDevice() || last.Device != r.info.Index || !last.Contains(q.Addr, uint64(q.Len)) {
			return false
		}
	}
	return true
}

// stage makes the lane's memory on the GPU.
func (l *pipeline) stage() bool {
	if l.staging != 0 {
		return true
	}
	a, err := l.r.dev.Alloc(gpu.KindDevice, coalesceBytes, 0)
	if err != nil {
		l.r.log.Warn("ring: no staging memory on the GPU, small requests are copied one by one", "error", err)
		return false
	}
	l.staging = a
	return true
}

// warm reports whether the page cache holds a part.
func (l *pipeline) warm(p *segment, s *slot) bool {
	q := &s.op.reqs[p.req]
	return l.r.files.Warm(q.Buffered, q.Off+p.off, int64(p.n))
}

// fillBatch reads the parts of a slot through io_uring, which is one system
// call instead of one for each, and lets a disk see all of them at once. What
// does not come through in full is left to read.
func (l *pipeline) readBatch(s *slot) {
	if l.warm(&s.segments[0], s) && l.warm(&s.segments[len(s.segments)-1], s) {
		return // what is in memory is read faster one by one
	}
	b := l.openUring()
	if b == nil {
		return
	}
	// The kernel completes reads on the thread that submitted them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for next := 0; next < len(s.segments) || b.Busy() > 0; {
		for ; next < len(s.segments) && b.Busy() < b.Entries(); next++ {
			p := &s.segments[next]
			q := &s.op.reqs[p.req]
			if b.Read(q.Buffered, s.mem[p.at:p.at+p.n], q.Off, uint64(next)) != nil {
				break
			}
		}
		if err := b.Submit((b.Busy() + 1) / 2); err != nil {
			l.dropUring(err)
			return
		}
		for _, d := range l.done[:b.Reap(l.done)] {
			if d.Res > 0 {
				s.segments[d.User].got = int(d.Res)
			}
		}
	}
}

func (l *pipeline) openUring() *uring.Ring {
	if l.triedUring || l.r.plain {
		return l.uring
	}
	l.triedUring = true
	b, err := uring.New(uringDepth)
	if err != nil {
		l.r.log.Debug("ring: reads go one by one", "error", err)
		return nil
	}
	l.uring, l.done = b, make([]uring.Done, uringDepth)
	return b
}

// dropBatch goes on without io_uring.
func (l *pipeline) dropUring(cause error) {
	l.r.log.Warn("ring: io_uring failed, going on without", "error", cause)
	if err := l.uring.Close(); err != nil {
		l.r.log.Warn("ring: close io_uring", "error", err)
	}
	l.uring = nil
}
