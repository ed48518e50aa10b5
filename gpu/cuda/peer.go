package cuda

import "github.com/culvert-io/culvert/gpu"

var _ gpu.PeerStream = (*Stream)(nil)

// CopyPeer enqueues a copy of memory of another GPU. cuMemcpyAsync would not do: it
// rejects virtual memory of GPUs that cannot reach each other.
func (t *Stream) CopyPeer(dst gpu.Addr, from gpu.Device, src gpu.Addr, n uint64) error {
	p, ok := from.(*Device)
	if !ok {
		return t.Copy(dst, src, n)
	}
	t.d.reach(p)
	s := &t.d.symbols.cuMemcpyPeerAsync
	if c := t.call(s, uintptr(dst), t.d.ctx, uintptr(src), p.ctx, uintptr(n), t.handle); c != gpu.Success {
		return t.d.fail(s, c, "", dst, src, n)
	}
	return nil
}

// reach lets the GPU access memory of another one, once. It may fail: without a link
// between the two, or with too many GPUs, the driver copies through host memory.
func (d *Device) reach(p *Device) {
	if d.dev == p.dev {
		return
	}
	if _, done := d.reached.LoadOrStore(p.ctx, nil); done {
		return
	}
	_ = d.call(&d.symbols.cuCtxEnablePeerAccess, p.ctx, 0)
}
