package nic

import (
	"cmp"
	"fmt"
	"sort"
	"sync"
	"syscall"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/p2p"
	"github.com/culvert-io/culvert/internal/hostmem"
	"github.com/culvert-io/culvert/internal/verbs"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel/peermem"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A region is memory registered with the adapter: bus addresses.
type region struct {
	nic    *NIC
	memory rdma.Memory // so that the garbage collector leaves host memory
	sg     []peermem.Segment
	starts []uint64 // offset of each segment
	revoke func()
	end    func() error
	once   sync.Once
}

// register gives memory bus addresses.
func (n *NIC) register(m rdma.Memory, access rdma.Access, revoke func()) (verbs.Backing, error) {
	r := &region{nic: n, memory: m, revoke: revoke}
	var err error
	if m.File != nil {
		err = r.importDMABuf(m)
	} else {
		err = r.pin(m, access)
	}
	if err != nil {
		return nil, err
	}
	r.index()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.regions[r] = true
	return r, nil
}

// index computes where the segments begin.
func (r *region) index() {
	for at, i := uint64(0), 0; i < len(r.sg); i++ {
		r.starts = append(r.starts, at)
		at += r.sg[i].Len
	}
}

// pin registers an address: ordinary memory, or a peer's.
func (r *region) pin(m rdma.Memory, access rdma.Access) error {
	n := r.nic
	if access&rdma.LocalWrite != 0 && hostmem.Accessible(m.Addr, m.Len, false) == nil {
		if err := hostmem.Accessible(m.Addr, m.Len, true); err != nil {
			return fmt.Errorf("pin memory: it is read-only: %w", err)
		}
	}
	u, err := n.cfg.Core.Get(n.cfg.RM.Self.Task(), n.fn, m.Addr, m.Len, access&rdma.LocalWrite != 0, peermem.Allow|peermem.Invalidate)
	if err != nil {
		return fmt.Errorf("pin memory: %w", err)
	}
	sg := u.SG()
	if u.Peer() != "" {
		// The list begins at the first system page.
		sg[0].Addr += m.Addr % systemPage
		sg[0].Len -= m.Addr % systemPage
	}
	r.sg = sg
	r.end = func() error {
		u.Release(n.cfg.RM.Self.Task(), true)
		return nil
	}
	u.Activate(r.revoke)
	return nil
}

const systemPage = 4096

// importDMABuf registers a descriptor.
func (r *region) importDMABuf(m rdma.Memory) error {
	n := r.nic
	if n.cfg.NoDMABuf {
		return fmt.Errorf("the driver of %s cannot import a dma-buf: %w", n.cfg.Name, syscall.EOPNOTSUPP)
	}
	var base gpu.Addr
	var size uint64
	conn, err := m.File.SyscallConn()
	if err != nil {
		return fmt.Errorf("dma-buf: %w", syscall.EBADF)
	}
	cerr := conn.Control(func(fd uintptr) { base, size, err = n.cfg.GPUs.ExportedAs(int(fd)) })
	if cerr != nil || err != nil {
		return fmt.Errorf("dma-buf: %w: %w", syscall.EINVAL, err)
	}
	buf, err := peermem.Export(n.cfg.RM, n.cfg.RM.Self.Task(), uint64(base), size)
	if err != nil {
		return fmt.Errorf("dma-buf: %w", err)
	}
	a, sg, err := peermem.RegisterDMABuf(buf, n.fn, m.Offset, m.Len, m.Addr)
	cerr = buf.Close() // the attachment has its own reference
	err = cmp.Or(err, cerr)
	if err == abi.ENOTSUPP { //nolint:errorlint // the driver returns it as it is
		err = fmt.Errorf("%s cannot reach the GPU across the host bridge: %w: %w", n.cfg.Name, syscall.EOPNOTSUPP, err)
	}
	if err != nil {
		return fmt.Errorf("dma-buf: %w", err)
	}
	r.sg, r.end = sg, a.Detach
	return nil
}

// Acquire implements verbs.Backing: DMA.
func (r *region) Acquire(segs [][]byte, off uint64, n int, write bool) ([][]byte, verbs.Hold, error) {
	dir := pcie.Read
	if write {
		dir = pcie.Write
	}
	a, err := r.nic.fn.AcquireAll(r.ranges(off, uint64(n)), dir)
	if err != nil {
		return segs, nil, err
	}
	return append(segs, a.Segs()...), a, nil
}

// ranges returns the bus addresses of [off, off+n).
func (r *region) ranges(off, n uint64) (list []pcie.Range) {
	i := sort.Search(len(r.starts), func(i int) bool { return r.starts[i] > off }) - 1
	for ; n > 0; i++ {
		in := off - r.starts[i]
		k := min(n, r.sg[i].Len-in)
		list = append(list, pcie.Range{Bus: r.sg[i].Addr + in, Len: int(k)})
		off, n = off+k, n-k
	}
	return list
}

// Close implements verbs.Backing.
func (r *region) Close() (err error) {
	r.once.Do(func() {
		err = r.end()
		r.nic.mu.Lock()
		defer r.nic.mu.Unlock()
		delete(r.nic.regions, r)
	})
	return err
}

// Pin pins memory of this process and maps it for an adapter: the ordinary half of a
// registration, for peermem.Config.
func Pin(fn *pcie.Function, addr, size uint64) ([]peermem.Segment, func(), error) {
	if err := hostmem.Accessible(addr, size, false); err != nil {
		return nil, nil, err
	}
	w, err := fn.Fabric().AddHost(gpu.HostBytes(gpu.Addr(addr), size))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", syscall.ENOMEM, err)
	}
	first := w.Base() &^ (systemPage - 1)
	var pages []uint64
	for p := first; p < w.Base()+size; p += systemPage {
		pages = append(pages, p)
	}
	m, err := fn.Map(pages, systemPage)
	if err != nil {
		w.Remove()
		return nil, nil, fmt.Errorf("%w: %w", syscall.ENOMEM, err)
	}
	return []peermem.Segment{{Addr: m.Addrs()[0] + w.Base() - first, Len: size}}, func() {
		m.Unmap()
		w.Remove()
	}, nil
}
