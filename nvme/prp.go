package nvme

// pageSize is the controller's memory page: CC.MPS is always 0.
const pageSize = 4096

// perList is the number of entries in a page of a PRP list.
const perList = pageSize / 8

// A pageTable has the bus addresses of mapped memory.
type pageTable struct {
	pages []uint64
	size  uint64 // of a page: a multiple of pageSize
}

// at is the bus address of a byte.
func (t pageTable) at(off uint64) uint64 { return t.pages[off/t.size] + off%t.size }

// listPages is the largest number of list pages for a transfer of n bytes.
func listPages(n int) int {
	entries := n / pageSize // besides PRP1, if that starts inside a page
	pages := 1
	for ; entries > perList; entries -= perList - 1 {
		pages++
	}
	return pages
}

// prpLists is the memory for the lists of one command.
type prpLists struct {
	words []uint64
	table pageTable
	off   uint64 // of the memory in table
}

// putPRPs describes n bytes from off of the memory. PRP1 may start inside a page.
// PRP2 is the second page, or points to a list of all pages but the first. The
// last entry of a list page points to the next list page if more than one page
// is left.
func putPRPs(mem pageTable, off, n uint64, l prpLists) (prp1, prp2 uint64) {
	prp1 = mem.at(off)
	end := off + n
	off += pageSize - off%pageSize
	switch {
	case off >= end:
		return prp1, 0
	case end-off <= pageSize:
		return prp1, mem.at(off)
	}
	for i := 0; off < end; i++ {
		if i%perList == perList-1 && end-off > pageSize {
			l.words[i] = l.table.at(l.off + uint64(i+1)*8)
			continue
		}
		l.words[i] = mem.at(off)
		off += pageSize
	}
	return prp1, l.table.at(l.off)
}
