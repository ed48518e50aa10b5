package ring

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// minScatter is the number of segments from which one copy and a kernel cost less
// than a copy for each.
const minScatter = 4

// A coalescer has the kernels that distribute coalesced requests on the GPU. They are
// loaded by the first batch that needs them.
type coalescer struct {
	dev    gpu.Device
	device int
	log    *slog.Logger

	once            sync.Once
	module          gpu.Module // nil if the kernels do not load
	gather, scatter gpu.Func
}

// loaded reports whether the kernels can be used.
func (c *coalescer) loaded() bool {
	c.once.Do(func() {
		if err := c.load(); err != nil {
			c.log.Warn("ring: cannot load kernels; copying small requests one by one", "error", err)
		}
	})
	return c.module != nil
}

func (c *coalescer) load() error {
	m, err := c.dev.Load(kernels.PTX)
	if err != nil {
		return err
	}
	if c.gather, err = m.Func("culvert_gather"); err == nil {
		c.scatter, err = m.Func("culvert_scatter")
	}
	if err != nil {
		return errors.Join(err, m.Close())
	}
	c.module = m
	return nil
}

func (c *coalescer) close() error {
	if c.module == nil {
		return nil
	}
	return c.module.Close()
}

// owns reports whether all segments are memory of this GPU. The driver rejects or
// manages a copy of any other memory; a kernel would fault and destroy the context.
func (c *coalescer) owns(s *slot) bool {
	var last gpu.Pointer
	for i := range s.segments {
		q := &s.batch.reqs[s.segments[i].req]
		if last.Contains(q.Addr, uint64(q.Len)) {
			continue
		}
		var err error
		last, err = c.dev.Pointer(q.Addr)
		if err != nil || !last.Kind.OnDevice() || last.Device != c.device || !last.Contains(q.Addr, uint64(q.Len)) {
			return false
		}
	}
	return true
}

// launchCoalesced queues a slot's copies as one copy and a kernel, or reports that it
// could not and did nothing.
func (p *pipeline) launchCoalesced(s *slot) bool {
	if !p.coalescer.loaded() || !p.coalescer.owns(s) || !p.stage() {
		return false
	}
	last := &s.segments[len(s.segments)-1]
	end := int(up(int64(last.at+last.n), 8))
	table := s.mem[end:end]
	for i := range s.segments {
		seg := &s.segments[i]
		addr := uint64(s.batch.reqs[seg.req].Addr)
		if s.write {
			table = kernels.Segment{Src: addr, Dst: uint64(seg.at), Len: uint64(seg.n)}.Append(table)
		} else {
			table = kernels.Segment{Src: uint64(seg.at), Dst: addr, Len: uint64(seg.got)}.Append(table)
		}
	}
	s.bytes = int64(end + len(table))
	if err := p.copyCoalesced(s, uint64(end), uint64(len(table))); err != nil {
		s.allFailed(errors.Join(err, p.stream.Synchronize()))
		return true
	}
	p.record(s)
	return true
}

// copyCoalesced moves end bytes of data, which the table follows.
func (p *pipeline) copyCoalesced(s *slot, end, table uint64) error {
	at := p.staging + gpu.Addr(end)
	grid, block := gpu.Dim{X: uint32(len(s.segments))}, gpu.Dim{X: 256}
	if !s.write {
		if err := p.stream.Copy(p.staging, s.addr, end+table); err != nil {
			return err
		}
		return p.stream.Launch(p.coalescer.scatter, grid, block, p.staging, at, uint64(len(s.segments)))
	}
	if err := p.stream.Copy(at, s.addr+gpu.Addr(end), table); err != nil {
		return err
	}
	if err := p.stream.Launch(p.coalescer.gather, grid, block, p.staging, at, uint64(len(s.segments))); err != nil {
		return err
	}
	return p.stream.Copy(s.addr, p.staging, end)
}

// stage allocates the pipeline's memory on the GPU.
func (p *pipeline) stage() bool {
	if p.staging != 0 {
		return true
	}
	a, err := p.dev.Alloc(gpu.KindDevice, coalesceBytes, 0)
	if err != nil {
		p.log.Warn("ring: cannot allocate GPU memory; copying small requests one by one", "error", err)
		return false
	}
	p.staging = a
	return true
}
