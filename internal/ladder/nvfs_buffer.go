package ladder

import (
	"errors"
	"fmt"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev/nvfs"
)

const (
	// nvfsShadow is the largest shadow buffer: what one request of the module gives
	// the drive at a time. The module keeps that much host memory for it.
	nvfsShadow = 4 << 20
	// nvfsMaxShadows is how many shadow buffers a registered buffer may have: each
	// does one transfer at a time.
	nvfsMaxShadows = 8
	// nvfsMaxBuffers is how many registered buffers are bound. Each needs mappings of
	// the process, of which Linux allows 65530.
	nvfsMaxBuffers = 4096
)

// An nvfsBuffer is a registered buffer with its shadow buffers.
type nvfsBuffer struct {
	client *nvfs.Client
	cfg    nvfs.Config

	mu   sync.Mutex
	back sync.Cond // an idle one was put back
	all  []*nvfs.Buffer
	idle []*nvfs.Buffer
	full bool // the module gives no more
}

// bind makes the first shadow buffer of a registered buffer; nil if there can be none.
func (r *nvfsRoute) bind(span gpu.Span) *nvfsBuffer {
	start := (uint64(span.Base) + nvfsBlock - 1) &^ (nvfsBlock - 1)
	end := uint64(span.Base) + span.Len
	if end < start+nvfsBlock {
		return nil
	}
	b := &nvfsBuffer{client: r.client, cfg: r.config(start, end-start)}
	b.back.L = &b.mu
	first, err := b.client.Register(b.cfg)
	if err != nil {
		return nil
	}
	b.all, b.idle = []*nvfs.Buffer{first}, make([]*nvfs.Buffer, 1, nvfsMaxShadows)
	b.idle[0] = first
	return b
}

// config describes GPU memory to the module.
func (r *nvfsRoute) config(addr, n uint64) nvfs.Config {
	cfg := nvfs.Config{
		Addr: addr, Size: n, Location: location(r.dev.Info().PCI),
		Zero: func(addr, n uint64) error { return r.copies.zero(gpu.Addr(addr), n) },
	}
	if n > nvfsShadow {
		cfg.Shadow = nvfsShadow
	}
	return cfg
}

// location encodes a PCI address for the module.
func location(pci string) uint64 {
	var domain, bus, device, fn uint64
	if _, err := fmt.Sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &fn); err != nil {
		return 0 // only statistics use it
	}
	return domain<<32 | bus<<8 | device<<3 | fn
}

// get acquires a shadow buffer, until put.
func (b *nvfsBuffer) get() *nvfs.Buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.idle) == 0 {
		if b.full || len(b.all) == nvfsMaxShadows {
			b.back.Wait()
			continue
		}
		s, err := b.client.Register(b.cfg)
		if err != nil {
			b.full = true
			continue
		}
		b.all = append(b.all, s)
		return s
	}
	n := len(b.idle) - 1
	s := b.idle[n]
	b.idle = b.idle[:n]
	return s
}

// put releases a shadow buffer.
func (b *nvfsBuffer) put(s *nvfs.Buffer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle = append(b.idle, s)
	b.back.Signal()
}

func (b *nvfsBuffer) close() error {
	var errs []error
	for _, s := range b.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
