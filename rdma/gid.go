package rdma

import (
	"fmt"
	"net/netip"
	"strings"
)

// A GIDWant is what a caller knows about the address to use.
type GIDWant struct {
	// Index is the index in the table, if not nil; nothing else counts then.
	Index *int
	// Local is the local IP address, if valid.
	Local netip.Addr
	// Peer is the peer's IP address, if valid: its family and loopback are preferred.
	Peer netip.Addr
}

// A GIDChoice is the chosen entry and why.
type GIDChoice struct {
	GIDEntry
	Why string
}

// ChooseGID picks the entry of a GID table to use on a port. On InfiniBand that is the
// first one. On Ethernet the order is: the address that was asked for, the peer's family,
// an address that is routed rather than link-local, RoCE v2 before v1, then the lower
// index. An entry of zeroes is never used.
func ChooseGID(table []GIDEntry, link LinkLayer, want GIDWant) (GIDChoice, error) {
	if want.Index != nil {
		return gidByIndex(table, *want.Index)
	}
	best, bestScore, why := -1, -1, ""
	for i, e := range table {
		if e.GID.IsZero() {
			continue
		}
		if link == LinkInfiniBand {
			return GIDChoice{e, fmt.Sprintf("GID %d is the port's own", e.Index)}, nil
		}
		if want.Local.IsValid() && (e.GID.Addr() != want.Local.Unmap() || e.Type == GIDInfiniBand) {
			continue
		}
		if s, reason := scoreGID(e, want.Peer); s > bestScore {
			best, bestScore, why = i, s, reason
		}
	}
	if best < 0 {
		return GIDChoice{}, noGID(table, want)
	}
	return GIDChoice{table[best], fmt.Sprintf("GID %d (%v): %s", table[best].Index, table[best].GID.Addr(), why)}, nil
}

func gidByIndex(table []GIDEntry, index int) (GIDChoice, error) {
	for _, e := range table {
		if e.Index == index && !e.GID.IsZero() {
			return GIDChoice{e, fmt.Sprintf("GID %d was asked for", index)}, nil
		}
	}
	return GIDChoice{}, fmt.Errorf("GID index %d is empty (fix: use one of %s)", index, listGIDs(table))
}

func scoreGID(e GIDEntry, peer netip.Addr) (score int, why string) {
	var reasons []string
	add := func(n int, yes bool, reason string) {
		if yes {
			score += n
			reasons = append(reasons, reason)
		}
	}
	a := e.GID.Addr()
	add(100, peer.IsValid() && a.Is4() == peer.Unmap().Is4(), "family of the peer")
	add(50, peer.IsValid() && a.IsLoopback() == peer.Unmap().IsLoopback(), "same scope as the peer")
	add(10, !a.IsLinkLocalUnicast(), "not link-local")
	add(2, e.Type == GIDRoCEv2, "RoCE v2")
	add(1, e.Type == GIDRoCEv1, "RoCE v1")
	return score, strings.Join(reasons, ", ")
}

func noGID(table []GIDEntry, want GIDWant) error {
	if want.Local.IsValid() {
		return fmt.Errorf("no GID for the local address %v (fix: use one of %s, or give the address to the device's interface)", want.Local, listGIDs(table))
	}
	return fmt.Errorf("the GID table is empty (fix: bring the port's interface up and give it an IP address)")
}

func listGIDs(table []GIDEntry) string {
	var list []string
	for _, e := range table {
		if !e.GID.IsZero() {
			list = append(list, fmt.Sprintf("%d (%v, %v)", e.Index, e.GID.Addr(), e.Type))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
