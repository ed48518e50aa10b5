package rdma_test

import (
	"fmt"
	"net/netip"

	"github.com/culvert-io/culvert/rdma"
)

// On a RoCE port the GID decides which address packets have.
func ExampleChooseGID() {
	table := []rdma.GIDEntry{
		{Index: 0, Type: rdma.GIDRoCEv1, GID: rdma.GIDFrom(netip.MustParseAddr("10.0.0.5"))},
		{Index: 1, Type: rdma.GIDRoCEv2, GID: rdma.GIDFrom(netip.MustParseAddr("10.0.0.5"))},
	}
	c, err := rdma.ChooseGID(table, rdma.LinkEthernet, rdma.GIDWant{Peer: netip.MustParseAddr("10.0.0.6")})
	fmt.Println(c.Index, c.Why, err)
	// Output: 1 GID 1 (10.0.0.5): family of the peer, same scope as the peer, not link-local, RoCE v2 <nil>
}
