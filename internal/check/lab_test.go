package check

import (
	"net/netip"
	"testing"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// TestLabNIC looks at a software RoCE device of a real kernel, and compares what sysfs
// says with what verbs say.
func TestLabNIC(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_NIC")
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(inside.SetAddress("eth0", netip.MustParsePrefix("10.0.0.1/24")))
	ok(inside.AddRXE("rxe0", "eth0"))
	list := lookNICs(dev.Host(), nil)
	if len(list) != 1 || list[0].Name != "rxe0" || list[0].PCI != "" || len(list[0].Ports) != 1 {
		t.Fatalf("devices %+v", list)
	}
	port := list[0].Ports[0]
	if port.State != "ACTIVE" || port.Link != "Ethernet" || port.GID == nil || port.Fix != "" {
		t.Fatalf("port %+v", port)
	}

	p, err := ibverbs.Open()
	ok(err)
	d, err := p.Open("rxe0")
	ok(err)
	attr, err := d.Port(1)
	ok(err)
	table, err := d.GIDs(1)
	ok(err)
	choice, err := rdma.ChooseGID(table, attr.Link, rdma.GIDWant{})
	ok(err)
	ok(d.Close())
	if attr.State != rdma.PortActive || attr.Link != rdma.LinkEthernet || len(table) != port.GIDs {
		t.Errorf("verbs say %+v and %d GIDs, sysfs %+v", attr, len(table), port)
	}
	if g := port.GID; g.Index != choice.Index || g.Addr != choice.GID.Addr() || g.Addr != netip.MustParseAddr("10.0.0.1") || g.Type != choice.Type.String() || g.Netdev != choice.NetDev {
		t.Errorf("the GID to use is %+v by sysfs and %+v by verbs", *g, choice)
	}
}
