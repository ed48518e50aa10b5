package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// take allocates n aligned bytes on a device for as long as the load lives.
func (l *Load) take(device int, n uint64) (gpu.Span, error) {
	d := l.devices[device]
	pad := uint64(0)
	if l.plan.Align > MinAlign {
		pad = l.plan.Align
	}
	addr, err := d.dev.Alloc(l.opts.Kind, n+pad, 0)
	if err != nil {
		return gpu.Span{}, fmt.Errorf("gpu:%d: %d bytes for tensors: %w", device, n+pad, err)
	}
	d.owned = append(d.owned, addr)
	all := gpu.Span{Dev: device, Base: addr, Len: n + pad}
	direct := slices.ContainsFunc(l.files, func(f reader) bool { return f != nil && f.direct(device) })
	if worthRegistering(l.plan, direct) {
		reg, err := l.engine.register(all)
		if err != nil {
			return gpu.Span{}, err
		}
		d.regs = append(d.regs, reg)
	}
	skip := alignUp(uint64(addr), l.plan.Align) - uint64(addr)
	if skip > pad {
		return gpu.Span{}, fmt.Errorf("gpu:%d: an allocation at %v, which is not a multiple of %d", device, addr, MinAlign)
	}
	return all.Slice(skip, n), nil
}

func (l *Load) allocate() (err error) {
	for i, b := range l.plan.Buffers {
		if l.buffers[i], err = l.take(b.Device, b.Size); err != nil {
			return err
		}
	}
	return nil
}

func (l *Load) openWindows() error {
	seen := make(map[int]bool)
	for i := range l.plan.Tensors {
		t := &l.plan.Tensors[i]
		if seen[t.Buffer] {
			return errors.New("a window needs a plan with one allocation per tensor")
		}
		seen[t.Buffer] = true
		if n := l.plan.Buffers[t.Buffer].Size; n > l.opts.Window {
			return fmt.Errorf("tensor %q has %d bytes, the window %d", t.Name, n, l.opts.Window)
		}
	}
	for i, d := range l.devices {
		span, err := l.take(i, l.opts.Window)
		if err != nil {
			return err
		}
		d.window = newWindow(span, l.plan.Align)
	}
	return nil
}
