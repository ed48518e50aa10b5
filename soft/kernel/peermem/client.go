package peermem

import (
	"github.com/culvert-io/culvert/soft/kernel/p2p"
	"github.com/culvert-io/culvert/soft/pcie"
)

// A Client is struct peer_memory_client: a peer's driver.
type Client struct {
	Name    string
	Version string
	// InvalidateUnmaps: an invalidation ends the mapping. The core calls DMAUnmap and
	// PutPages only when the memory is released.
	InvalidateUnmaps bool
	// Acquire returns the range as memory of the client, or nil if it is not.
	Acquire func(t *p2p.Task, addr, size uint64) Memory
}

// A Memory is a range that a client has claimed, with the client's other calls.
type Memory interface {
	// GetPages pins. ticket names the registration in an invalidation.
	GetPages(t *p2p.Task, write, force bool, ticket uint64) error
	DMAMap(t *p2p.Task, dev *pcie.Function) ([]Segment, error)
	// DMAUnmap gets the segments that DMAMap returned.
	DMAUnmap(t *p2p.Task, dev *pcie.Function, sg []Segment)
	PutPages(t *p2p.Task)
	PageSize() uint64
	Release(t *p2p.Task)
}

// A Segment is an entry of a scatterlist.
type Segment struct {
	Addr uint64 // bus address
	Len  uint64
}

// Flags say what the caller of a registration supports.
type Flags uint8

const (
	Allow      Flags = 1 // IB_PEER_MEM_ALLOW: peer memory
	Invalidate Flags = 2 // IB_PEER_MEM_INVAL_SUPP: destroying the key at any time
)

// systemPage is the page size of adapters.
const systemPage = 4 << 10

// trim cuts a scatterlist of larger pages to the system pages that contain [addr,
// addr+size), as fix_peer_sgls does.
func trim(sg []Segment, addr, size, peerPage uint64) {
	if len(sg) == 0 || peerPage <= systemPage {
		return
	}
	down := func(a, page uint64) uint64 { return a &^ (page - 1) }
	up := func(a, page uint64) uint64 { return down(a+page-1, page) }
	head := down(addr, systemPage) - down(addr, peerPage)
	tail := up(addr+size, peerPage) - up(addr+size, systemPage)
	sg[0].Addr += head
	sg[0].Len -= head
	sg[len(sg)-1].Len -= tail
}
