package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/culvert-io/culvert/gpu"
)

// allocate allocates the buffers of the plan, or the windows that replace them.
func (l *Load) allocate() (err error) {
	l.buffers = make([]gpu.Span, len(l.plan.Buffers))
	if l.opts.Window > 0 || l.opts.host != nil {
		return l.allocatePerTensor()
	}
	for i, b := range l.plan.Buffers {
		if l.buffers[i], err = l.take(b.Device, b.Size); err != nil {
			return err
		}
	}
	return nil
}

// allocatePerTensor creates the windows, or uses the caller's memory.
func (l *Load) allocatePerTensor() error {
	seen := make(map[int]bool)
	for i := range l.plan.Tensors {
		t := &l.plan.Tensors[i]
		if seen[t.Buffer] {
			return errors.New("a window, or a load into host memory, needs a plan with one allocation per tensor")
		}
		seen[t.Buffer] = true
		if l.opts.host != nil {
			l.buffers[t.Buffer] = gpu.Span{Dev: l.plan.Buffers[t.Buffer].Device, Base: l.opts.host[i], Len: t.Off + t.Len}
		} else if n := l.plan.Buffers[t.Buffer].Size; n > l.opts.Window {
			return fmt.Errorf("tensor %q (%d bytes) exceeds the window (%d bytes)", t.Name, n, l.opts.Window)
		}
	}
	if l.opts.host != nil {
		return nil
	}
	for i, d := range l.devices {
		span, err := l.take(i, l.opts.Window)
		if err != nil {
			return err
		}
		d.window = newWindow(span)
	}
	return nil
}

// take allocates n bytes on a device, until the load is closed.
func (l *Load) take(device int, n uint64) (gpu.Span, error) {
	d := l.devices[device]
	addr, err := d.dev.Alloc(l.opts.Kind, n, 0)
	if err != nil {
		return gpu.Span{}, fmt.Errorf("gpu:%d: allocate %d bytes for tensors: %w", device, n, err)
	}
	d.owned = append(d.owned, addr)
	if addr%tensorAlign != 0 {
		return gpu.Span{}, fmt.Errorf("gpu:%d: allocation at %v is not a multiple of %d", device, addr, tensorAlign)
	}
	span := gpu.Span{Dev: device, Base: addr, Len: n}
	d.spans = append(d.spans, span)
	return span, nil
}

// register registers what was allocated, where that makes the load faster.
func (l *Load) register() error {
	for device, d := range l.devices {
		if len(d.spans) == 0 || !worthRegistering(l.plan, l.direct(device)) {
			continue
		}
		for _, span := range d.spans {
			reg, err := l.engine.register(span)
			if err != nil {
				return err
			}
			d.regs = append(d.regs, reg)
		}
	}
	return nil
}

// direct reports whether a drive can fill memory of a device with bytes of a file.
func (l *Load) direct(device int) bool {
	return slices.ContainsFunc(l.files, func(f reader) bool { return f != nil && f.direct(device) })
}
