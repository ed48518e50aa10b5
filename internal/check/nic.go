package check

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/sysfs"
	"github.com/culvert-io/culvert/rdma"
)

// A NIC is an RDMA device.
type NIC struct {
	Name     string     `json:"name"`
	PCI      string     `json:"pci,omitempty"` // "" for a software device
	Firmware string     `json:"firmware,omitempty"`
	Ports    []Port     `json:"ports"`
	Peers    []Peer     `json:"peers"` // the GPUs
	Register []Register `json:"registration"`
}

// A Port of a NIC.
type Port struct {
	Number int    `json:"number"`
	State  string `json:"state"` // "ACTIVE"
	Link   string `json:"link_layer"`
	Rate   string `json:"rate"`
	GIDs   int    `json:"gids"`
	GID    *GID   `json:"gid,omitempty"` // the one to use
	Fix    string `json:"fix,omitempty"`
}

// A GID is an address of a port.
type GID struct {
	Index  int        `json:"index"`
	Addr   netip.Addr `json:"address"`
	Type   string     `json:"type"` // "IB/RoCE v1", "RoCE v2"
	Netdev string     `json:"netdev,omitempty"`
}

const noNIC = "install an RDMA card and its driver; without one, in software: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev INTERFACE"

const classInfiniband = "sys/class/infiniband"

// lookNICs lists the RDMA devices of os and how they reach the GPUs.
func lookNICs(os dev.OS, gpus []GPU) []NIC {
	root := os.FS()
	entries, _ := fs.ReadDir(root, classInfiniband) // the class exists once its module is loaded
	list := []NIC{}
	for _, e := range entries {
		dir := path.Join(classInfiniband, e.Name())
		n := NIC{Name: e.Name(), Firmware: firstLine(root, dir+"/fw_ver"), PCI: pciOf(root, dir)}
		n.Ports = lookPorts(root, dir)
		// An emulated adapter is on the emulated fabric, which sysfs does not show.
		emulated := n.PCI == "" && dev.Simulated(os)
		for _, g := range gpus {
			p := lookPeer(root, n.PCI, g)
			if emulated {
				p = Peer{GPU: g.Index, Distance: "emulated", Means: "on the fabric of the software machine"}
			}
			n.Peers = append(n.Peers, p)
		}
		n.Register = lookRegister(root, n.PCI == "" && !emulated, gpus)
		list = append(list, n)
	}
	return list
}

// pciOf is the PCI address of a device in a class directory; "" if it has none.
func pciOf(root fs.FS, dir string) string {
	if name := sysfs.Link(root, dir+"/device"); isBDF(name) {
		return name
	}
	return ""
}

// isBDF reports whether a text is a PCI address: 0000:3b:00.0.
func isBDF(s string) bool { return strings.Count(s, ":") == 2 && strings.Contains(s, ".") }

func lookPorts(root fs.FS, dir string) []Port {
	list := []Port{}
	entries, _ := fs.ReadDir(root, dir+"/ports")
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		at := path.Join(dir, "ports", e.Name())
		p := Port{Number: number, Link: firstLine(root, at+"/link_layer"), Rate: firstLine(root, at+"/rate")}
		p.State = withoutNumber(firstLine(root, at+"/state"))
		gids := lookGIDs(root, at)
		p.GIDs, p.GID = len(gids), chooseGID(gids, p.Link)
		p.Fix = p.fix(withoutNumber(firstLine(root, at+"/phys_state")))
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Port) int { return a.Number - b.Number })
	return list
}

// withoutNumber is the name in "4: ACTIVE".
func withoutNumber(s string) string {
	_, name, ok := strings.Cut(s, ": ")
	if !ok {
		return s
	}
	return name
}

func (p *Port) fix(physical string) string {
	ethernet := p.Link == "Ethernet"
	switch {
	case p.State == "ACTIVE" && ethernet && p.GID == nil:
		return "give the network interface of this port an IP address: ip address add ADDRESS/PREFIX dev INTERFACE"
	case p.State == "ACTIVE":
		return ""
	case p.State == "INIT" || p.State == "ARMED":
		return "start a subnet manager: systemctl start opensm"
	case ethernet:
		return "set the network interface of this port up: ip link set INTERFACE up; then check cable and switch"
	case physical == "Polling" || physical == "Disabled":
		return "check cable and switch: the link is " + physical
	}
	return "check cable, switch and subnet manager"
}

// lookGIDs lists the GIDs of a port that are set.
func lookGIDs(root fs.FS, port string) []GID {
	entries, _ := fs.ReadDir(root, port+"/gids")
	var list []GID
	for _, e := range entries {
		index, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		addr, err := netip.ParseAddr(firstLine(root, path.Join(port, "gids", e.Name())))
		if err != nil || addr == netip.IPv6Unspecified() {
			continue
		}
		list = append(list, GID{
			Index: index, Addr: addr.Unmap(),
			Type:   firstLine(root, path.Join(port, "gid_attrs/types", e.Name())),
			Netdev: firstLine(root, path.Join(port, "gid_attrs/ndevs", e.Name())),
		})
	}
	slices.SortFunc(list, func(a, b GID) int { return a.Index - b.Index })
	return list
}

// chooseGID picks the GID that connections use; nil if there is none.
func chooseGID(list []GID, link string) *GID {
	layer, table := rdma.LinkEthernet, make([]rdma.GIDEntry, len(list))
	if link == "InfiniBand" {
		layer = rdma.LinkInfiniBand
	}
	for i, g := range list {
		table[i] = rdma.GIDEntry{GID: rdma.GIDFrom(g.Addr), Index: i, Type: rdma.GIDRoCEv1}
		if g.Type == "RoCE v2" {
			table[i].Type = rdma.GIDRoCEv2
		}
	}
	choice, err := rdma.ChooseGID(table, layer, rdma.GIDWant{})
	if err != nil {
		return nil
	}
	return &list[choice.Index]
}

func (t *text) nics(d *Devices) {
	t.line("network")
	if len(d.NICs) == 0 {
		if t.item("none", "", "no RDMA device", d.NoNIC); d.NoNIC == "" {
			t.fix(noNIC)
		}
	}
	for _, n := range d.NICs {
		t.nic(n)
	}
}

func (t *text) nic(n NIC) {
	t.item(n.Name, "", cmp.Or(n.PCI, "software device"), after("firmware ", n.Firmware))
	for _, p := range n.Ports {
		t.item(fmt.Sprintf("  port %d", p.Number), p.State, strings.TrimSpace(p.Link+" "+p.Rate), "")
		t.fix(p.Fix)
		if g := p.GID; g != nil {
			t.item(fmt.Sprintf("    GID %d", g.Index), "", strings.TrimSpace(fmt.Sprintf("%s %s %s", g.Addr, g.Type, g.Netdev)), fmt.Sprintf("chosen of %d", p.GIDs))
		}
	}
	for _, p := range n.Peers {
		t.item(fmt.Sprintf("  gpu:%d", p.GPU), p.Distance, p.Means, "")
		if p.Verdict != "" {
			t.item("", "", p.Verdict, "")
			t.fix(p.Fix)
		}
	}
	for _, r := range n.Register {
		state := "no"
		if r.Usable {
			state = "ok"
		}
		t.item("  "+r.Way, state, r.Why, "")
		t.fix(r.Fix)
	}
}
