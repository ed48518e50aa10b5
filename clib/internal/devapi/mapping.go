package devapi

import (
	"cmp"
	"errors"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/internal/dev"
)

// A mapping is memory of a node or a dma-buf that the program has mapped. What the program unmaps of
// it stays reserved until it has unmapped all: the emulated module revokes a mapping as a
// whole, and must not meet memory that the program has mapped there since.
type mapping struct {
	dev.Mapping
	gone map[uint64]bool // pages that were unmapped
}

var page = uint64(syscall.Getpagesize())

func roundUp(n uint64) uint64 { return (n + page - 1) &^ (page - 1) }

func (m *mapping) from() uint64 { return uint64(m.Addr()) }
func (m *mapping) to() uint64   { return m.from() + roundUp(uint64(m.Len())) }

// Mmap maps memory of a node, shared, at an address that the kernel chooses.
func (a *API) Mmap(id handle.ID, n uint64, prot, flags int32, off int64) (int64, error) {
	f, err := a.find(id)
	if err != nil {
		return -1, err
	}
	switch {
	case !mappable(n, flags):
		return -1, syscall.EINVAL
	case prot&unix.PROT_WRITE != 0 && !f.writable:
		return -1, syscall.EACCES
	}
	m, err := f.Node.Mmap(off, int(n), int(prot))
	if err != nil {
		return -1, err
	}
	return a.keep(m), nil
}

// MmapExport maps memory of a dma-buf, as Mmap does that of a node. ENODEV means that the
// descriptor is something else.
func (a *API) MmapExport(fd int32, n uint64, prot, flags int32, off int64) (int64, error) {
	if !mappable(n, flags) {
		return -1, syscall.EINVAL
	}
	m, err := a.exports(int(fd), off, n, int(prot))
	if err != nil {
		return -1, err
	}
	return a.keep(m), nil
}

// mappable reports whether a mapping is shared, at an address that the kernel chooses.
func mappable(n uint64, flags int32) bool {
	kind := flags & unix.MAP_TYPE
	shared := kind == unix.MAP_SHARED || kind == unix.MAP_SHARED_VALIDATE
	return shared && flags&(unix.MAP_FIXED|unix.MAP_FIXED_NOREPLACE) == 0 && n != 0 && n <= 1<<62
}

// keep notes a mapping of the program and returns its address.
func (a *API) keep(m dev.Mapping) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.maps = append(a.maps, &mapping{m, map[uint64]bool{}})
	slices.SortFunc(a.maps, func(x, y *mapping) int { return cmp.Compare(x.from(), y.from()) })
	return int64(m.Addr())
}

// Munmap unmaps a range as munmap(2) does: parts of the mappings in it, and what is
// between them.
func (a *API) Munmap(addr, n uint64) error {
	if addr%page != 0 || n == 0 || addr+n < addr {
		return syscall.EINVAL
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at, end := addr, addr+roundUp(n)
	var errs []error
	for _, m := range slices.Clone(a.maps) {
		from, to := max(m.from(), addr), min(m.to(), end)
		if from >= to {
			continue
		}
		errs = append(errs, unmapHost(at, from), a.cut(m, from, to))
		at = to
	}
	return errors.Join(append(errs, unmapHost(at, end))...)
}

// unmapHost unmaps memory that no node has mapped.
func unmapHost(from, to uint64) error {
	if from >= to {
		return nil
	}
	return unix.MunmapPtr(cmem.Ptr(from).Pointer(), uintptr(to-from))
}

// cut takes a part out of a mapping. Call with mu held.
func (a *API) cut(m *mapping, from, to uint64) error {
	for p := from; p < to; p += page {
		m.gone[p] = true
	}
	if uint64(len(m.gone))*page < m.to()-m.from() {
		_, err := unix.MmapPtr(-1, 0, cmem.Ptr(from).Pointer(), uintptr(to-from), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_FIXED)
		return err
	}
	a.maps = slices.DeleteFunc(a.maps, func(x *mapping) bool { return x == m })
	return m.Unmap()
}
