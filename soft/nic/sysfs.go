package nic

import (
	"fmt"

	"github.com/culvert-io/culvert/internal/verbs"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft/kernel"
)

// Tree returns the adapter's files in /sys/class/infiniband/<name>.
func (n *NIC) Tree() kernel.Tree {
	text := func(s string) func() []byte { return func() []byte { return []byte(s + "\n") } }
	g := n.Info().GUID
	gid := rdma.GIDFrom(loopback(1)) // one that is open has an address of its own
	if a := n.cfg.Listen.Addr(); a.IsValid() && !a.IsUnspecified() {
		gid = rdma.GIDFrom(a)
	}
	t := kernel.Tree{
		"node_type":                 text("1: CA"),
		"node_guid":                 text(fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)),
		"fw_ver":                    text("software"),
		"hca_type":                  text("software"),
		"device/uevent":             text("PCI_SLOT_NAME=" + n.fn.Name()),
		"ports/1/state":             text("4: ACTIVE"),
		"ports/1/phys_state":        text("5: LinkUp"),
		"ports/1/link_layer":        text("Ethernet"),
		"ports/1/rate":              text(fmt.Sprintf("%d Gb/sec (4X NDR)", Gbps)),
		"ports/1/lid":               text("0x0"),
		"ports/1/gids/0":            text(gid.String()),
		"ports/1/gid_attrs/types/0": text(rdma.GIDRoCEv2.String()),
		"ports/1/gid_attrs/ndevs/0": text(n.cfg.Name),
		"ports/1/pkeys/0":           text("0xffff"),
		"ports/1/cap_mask":          text("0x00010000"),
		"ports/1/sm_lid":            text("0x0"),
		"ports/1/lid_mask_count":    text("0"),
		"ports/1/sm_sl":             text("0"),
		"sys_image_guid":            text("0000:0000:0000:0000"),
		"node_desc":                 text(n.cfg.Name),
		"board_id":                  text("CULVERT0000000001"),
		"hw_rev":                    text("0"),
	}
	for name, get := range map[string]func(verbs.Counters) uint64{
		"counters/port_xmit_data":                    func(c verbs.Counters) uint64 { return c.SentBytes / 4 },
		"counters/port_rcv_data":                     func(c verbs.Counters) uint64 { return c.ReceivedBytes / 4 },
		"counters/port_xmit_packets":                 func(c verbs.Counters) uint64 { return c.SentFrames },
		"counters/port_rcv_packets":                  func(c verbs.Counters) uint64 { return c.ReceivedFrames },
		"hw_counters/duplicate_request":              func(c verbs.Counters) uint64 { return c.Duplicates },
		"hw_counters/rnr_nak_retry_err":              func(c verbs.Counters) uint64 { return c.NotReady },
		"hw_counters/resp_remote_access_errors":      func(c verbs.Counters) uint64 { return c.Rejected },
		"hw_counters/local_ack_timeout_err":          func(c verbs.Counters) uint64 { return c.Timeouts },
		"hw_counters/req_transport_retries_exceeded": func(c verbs.Counters) uint64 { return c.RetriesExceeded },
	} {
		t["ports/1/"+name] = func() []byte { return fmt.Appendln(nil, get(n.counters())) }
	}
	return t
}
