package peermem

import (
	"cmp"
	"sync"
	"syscall"

	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A DMABuf is GPU memory behind a file descriptor, as NVIDIA's driver exports it. It
// keeps the memory, even if the owner frees it, until the last reference is dropped.
// Mappings never move.
type DMABuf struct {
	rm    *p2p.RM
	task  *p2p.Task
	va    uint64 // of the first page
	off   uint64 // of the exported range in the first page
	size  uint64
	table *p2p.PageTable

	mu   sync.Mutex
	refs int
}

// Export exports size bytes at va, both multiples of the system's page size. The
// caller has one reference, which stands for the descriptor.
func Export(rm *p2p.RM, t *p2p.Task, va, size uint64) (*DMABuf, error) {
	if va%systemPage != 0 || size == 0 || size%systemPage != 0 || va+size < va {
		return nil, syscall.EINVAL
	}
	b := &DMABuf{rm: rm, task: t, va: va &^ (p2p.PageSize - 1), size: size, refs: 1}
	b.off = va - b.va
	n := (b.off + size + p2p.PageSize - 1) &^ (p2p.PageSize - 1)
	var err error
	b.table, err = rm.GetPagesPersistent(t, b.va, n, 0)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Size returns the number of exported bytes.
func (b *DMABuf) Size() uint64 { return b.size }

// hold takes a reference, unless there is none left.
func (b *DMABuf) hold() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return false
	}
	b.refs++
	return true
}

// Close drops a reference, and the memory with the last one.
func (b *DMABuf) Close() error {
	b.mu.Lock()
	if b.refs == 0 {
		b.mu.Unlock()
		return syscall.EBADF
	}
	b.refs--
	last := b.refs == 0
	b.mu.Unlock()
	if !last {
		return nil
	}
	return b.rm.PutPagesPersistent(b.task, b.va, b.table, 0)
}

// An Attachment is a buffer mapped for one device.
type Attachment struct {
	buf  *DMABuf
	kind pcie.MapKind
	dma  *p2p.DMAMapping // nil for bus addresses
	sg   []Segment
	once sync.Once
}

// Attach maps the buffer for a device, in segments of at most maxSegment bytes (0 for
// no limit). Unlike nvidia_p2p it checks the topology: a device that cannot reach the
// GPU gets ENOTSUPP. The attachment has a reference to the buffer.
func (b *DMABuf) Attach(dev *pcie.Function, maxSegment uint64) (*Attachment, error) {
	if dev == nil {
		return nil, syscall.EINVAL
	}
	a := &Attachment{buf: b}
	if a.kind, _ = pcie.Peers(dev, b.table.Port()); a.kind == pcie.NotSupported {
		return nil, abi.ENOTSUPP
	}
	if !b.hold() {
		return nil, syscall.EBADF
	}
	pages := b.table.Pages
	if a.kind == pcie.ThroughHostBridge {
		var err error
		if a.dma, err = b.rm.DMAMapPages(dev, b.table); err != nil {
			_ = b.Close() // the first error is reported
			return nil, err
		}
		pages = a.dma.Addresses
	}
	a.sg = segments(pages, b.off, b.size, maxSegment)
	return a, nil
}

// segments returns size bytes from off in pages, adjacent pages joined up to a limit.
func segments(pages []uint64, off, size, limit uint64) (sg []Segment) {
	limit = cmp.Or(limit, 1<<62)
	for size > 0 {
		at := pages[off/p2p.PageSize] + off%p2p.PageSize
		n := min(p2p.PageSize-off%p2p.PageSize, size)
		off += n
		size -= n
		for n > 0 {
			if i := len(sg) - 1; i >= 0 && sg[i].Addr+sg[i].Len == at && sg[i].Len < limit {
				k := min(n, limit-sg[i].Len)
				sg[i].Len += k
				at += k
				n -= k
				continue
			}
			sg = append(sg, Segment{at, 0})
		}
	}
	return sg
}

// SG returns the bus addresses of the buffer.
func (a *Attachment) SG() []Segment { return a.sg }

// Detach unmaps and drops the reference.
func (a *Attachment) Detach() (err error) {
	a.once.Do(func() {
		if a.dma != nil {
			err = a.buf.rm.DMAUnmapPages(a.dma.Peer, a.buf.table, a.dma)
		}
		err = cmp.Or(err, a.buf.Close())
	})
	return err
}

// RegisterDMABuf registers length bytes from offset of a buffer for an adapter, as
// ibv_reg_dmabuf_mr does. The registration has a reference to the buffer, so that the
// descriptor may be closed. iova and offset must be equal modulo the page size.
func RegisterDMABuf(b *DMABuf, dev *pcie.Function, offset, length, iova uint64) (*Attachment, []Segment, error) {
	if length == 0 || offset > b.size || length > b.size-offset || offset%systemPage != iova%systemPage {
		return nil, nil, syscall.EINVAL
	}
	a, err := b.Attach(dev, 0)
	if err != nil {
		return nil, nil, err
	}
	return a, cut(a.sg, offset, length), nil
}

// cut returns [off, off+n) of a scatterlist.
func cut(sg []Segment, off, n uint64) (part []Segment) {
	for _, s := range sg {
		if off >= s.Len {
			off -= s.Len
			continue
		}
		k := min(s.Len-off, n)
		if k == 0 {
			break
		}
		part = append(part, Segment{s.Addr + off, k})
		off, n = 0, n-k
	}
	return part
}
