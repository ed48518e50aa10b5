package verbs

import (
	"testing"

	"github.com/culvert-io/culvert/rdma"
)

// A peer without a LID, as programs for RoCE describe one, is at the default port.
func TestPeerWithoutLID(t *testing.T) {
	v := newVictim(t, "")
	defer v.close()
	v.ok(v.qp.Modify(rdma.QPAttr{State: rdma.Reset}, rdma.MaskState))
	own := rdma.QPInfo{QPNum: v.qp.Num(), PSN: ownPSN, LID: v.dev.lid, MTU: 5, RDAtomic: 4, GID: v.local}
	peer := rdma.QPInfo{QPNum: peerQP, PSN: peerPSN, MTU: 5, RDAtomic: 4, GID: v.local}
	v.ok(rdma.Connect(v.qp, own, peer, rdma.GIDChoice{}, rdma.Options{}))
	if _, addr, _, ok := v.qp.startCall(); !ok || addr.Port() != DefaultPort || addr.Addr() != v.local.Addr() {
		t.Errorf("the peer is called at %v, %t; want %v, port %d", addr, ok, v.local.Addr(), DefaultPort)
	}
}
