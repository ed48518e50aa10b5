package p2p

import (
	"slices"
	"sync"
	"syscall"
)

// userPage is the size of the pages of user memory.
const userPage = 4 << 10

// An MM is the memory of a process, as far as it can be pinned.
type MM struct {
	mu        sync.Mutex
	changed   sync.Cond // a table's life
	ranges    []userRange
	notifiers []*TegraTable
	pinned    int // pages
}

// A userRange is mapped memory.
type userRange struct {
	addr uint64
	mem  []byte
}

// NewMM is the memory of a process that has none yet.
func NewMM() *MM {
	m := &MM{}
	m.changed.L = &m.mu
	return m
}

// Pinned is the number of pages that pins hold.
func (m *MM) Pinned() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pinned
}

// Map adds whole pages of memory to the process, where they are.
func (m *MM) Map(mem []byte) (addr uint64, err error) {
	if len(mem) == 0 {
		return 0, syscall.EINVAL
	}
	addr = addrOf(mem)
	if addr%userPage != 0 || len(mem)%userPage != 0 {
		return 0, syscall.EINVAL
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = append(m.ranges, userRange{addr, mem})
	return addr, nil
}

// Unmap takes what was mapped at addr away: notifiers first.
func (m *MM) Unmap(addr uint64) error {
	m.mu.Lock()
	i := slices.IndexFunc(m.ranges, func(r userRange) bool { return r.addr == addr })
	if i < 0 {
		m.mu.Unlock()
		return syscall.EINVAL
	}
	end := addr + uint64(len(m.ranges[i].mem))
	m.mu.Unlock()
	m.Invalidate(addr, end)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = slices.DeleteFunc(m.ranges, func(r userRange) bool { return r.addr == addr })
	return nil
}

// Invalidate is the notifier's invalidate_range_start. As in the original a pin
// is lost when its first byte is in the range, and does not notice otherwise;
// its pages stay what they are in any case, for they are pinned.
func (m *MM) Invalidate(start, end uint64) {
	m.each(func(t *TegraTable) bool { return start <= t.vaddr && t.vaddr <= end })
}

// Exit ends the process: all pins are lost.
func (m *MM) Exit() {
	m.each(func(*TegraTable) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = nil
}

// each takes the tables that match from the notifier's list and calls back.
func (m *MM) each(match func(*TegraTable) bool) {
	m.mu.Lock()
	var lost []*TegraTable
	m.notifiers = slices.DeleteFunc(m.notifiers, func(t *TegraTable) bool {
		if !match(t) {
			return false
		}
		lost = append(lost, t)
		return true
	})
	m.mu.Unlock()
	for _, t := range lost {
		t.callBack()
	}
}

// find is the memory from addr on: pages that follow each other in the
// process's address space, whatever ranges they are in.
func (m *MM) find(addr uint64, pages int) [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var parts [][]byte
	for pages > 0 {
		i := slices.IndexFunc(m.ranges, func(r userRange) bool { return addr >= r.addr && addr < r.addr+uint64(len(r.mem)) })
		if i < 0 {
			return nil
		}
		mem := m.ranges[i].mem[addr-m.ranges[i].addr:]
		mem = mem[:min(len(mem), pages*userPage)]
		parts = append(parts, mem)
		pages -= len(mem) / userPage
		addr += uint64(len(mem))
	}
	return parts
}
