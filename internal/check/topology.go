package check

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/sysfs"
	"github.com/culvert-io/culvert/machine"
)

// A Topology is what lies on PCIe between the drives of a path, the network adapters and
// a GPU.
type Topology struct {
	// Devices are a tree, each followed by what is below it.
	Devices []PCIDevice `json:"devices"`
	// Ways are those from each drive and adapter to the GPU.
	Ways []Way `json:"ways"`
}

// A PCIDevice is a device, or a bridge above one.
type PCIDevice struct {
	Depth int      `json:"depth"`
	Kind  string   `json:"kind"`           // "host bridge", "root port", "switch", "bridge", "drive", "NIC", "GPU"
	Name  string   `json:"name,omitempty"` // "nvme0n1", "gpu:0"
	PCI   string   `json:"pci"`
	Node  int      `json:"numa_node"`      // -1 if unknown
	Link  *PCILink `json:"link,omitempty"` // the one above it; nil if sysfs does not tell
}

// A PCILink is a PCIe link.
type PCILink struct {
	Speed    float64 `json:"gt_per_second"`
	Width    int     `json:"width"`
	MaxSpeed float64 `json:"max_gt_per_second,omitempty"` // of the device; the other end may be slower
	MaxWidth int     `json:"max_width,omitempty"`
	// Rate is what it can carry in each direction, in bytes per second, without the
	// headers of packets. That of a GPU is of its maximum speed: an idle one slows down.
	Rate float64 `json:"bytes_per_second"`
	// Narrowest marks the slowest link between the drives and the GPU.
	Narrowest bool `json:"narrowest,omitempty"`
}

// A Way is the distance between a device and the GPU.
type Way struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Distance string `json:"distance"` // as nvidia-smi topo prints it
	Means    string `json:"means"`    // in words
}

// ways in words, by what nvidia-smi calls them.
var wayWords = map[string]string{
	"PIX":  "same switch",
	"PXB":  "several switches below one root port",
	"PHB":  "same host bridge",
	"NODE": "same socket, different host bridges",
	"SYS":  "across sockets",
}

// endpoint is a device at the end of a branch.
type endpoint struct{ kind, name, pci string }

// lookTopology finds the drives of a stack, the network adapters and a GPU. It returns nil
// if sysfs shows none of the drives and adapters, or not the GPU.
func lookTopology(root fs.FS, stack *blockstack.Stack, nics []NIC, g GPU) *Topology {
	gpu := endpoint{"GPU", "gpu:" + strconv.Itoa(g.Index), strings.ToLower(g.PCI)}
	others := endpoints(root, stack, nics)
	if sysfs.Above(root, gpu.pci) == nil || len(others) == 0 {
		return nil
	}
	t := &Topology{}
	for _, e := range append(others, gpu) {
		t.add(root, e)
	}
	for _, e := range others {
		name, _ := distance(root, e.pci, gpu.pci)
		t.Ways = append(t.Ways, Way{e.name, gpu.name, name, wayWords[name]})
	}
	t.markNarrowest(root, others, gpu)
	return t
}

// endpoints are the drives and adapters that sysfs shows on PCIe. A drive that is reached
// through an adapter is none.
func endpoints(root fs.FS, stack *blockstack.Stack, nics []NIC) (list []endpoint) {
	add := func(e endpoint) {
		known := func(o endpoint) bool { return o.pci == e.pci }
		if sysfs.Above(root, e.pci) != nil && !slices.ContainsFunc(list, known) {
			list = append(list, e)
		}
	}
	if stack != nil {
		for _, l := range stack.Layers {
			switch l.Kind {
			case blockstack.Drive:
				add(endpoint{"drive", l.Name, l.PCI})
			case blockstack.Adapter:
				add(endpoint{"NIC", l.Name, l.PCI})
			}
		}
	}
	for _, n := range nics {
		add(endpoint{"NIC", n.Name, n.PCI})
	}
	return list
}

// add adds a device and the bridges above it. Ports of a switch are one: the link of its
// upper port is the one above the switch, and that of a lower port belongs to the device
// below.
func (t *Topology) add(root fs.FS, e endpoint) {
	chain := sysfs.Above(root, e.pci)
	at := t.place(root, -1, PCIDevice{Kind: "host bridge", PCI: chain[0]})
	t.Devices[at].Node = numaNode(root, e.pci) // sysfs has it for devices only
	for i := 1; i < len(chain); i++ {
		switch {
		case i == 1:
			at = t.place(root, at, PCIDevice{Kind: "root port", PCI: chain[i]})
		case i+1 < len(chain):
			at = t.place(root, at, PCIDevice{Kind: "switch", PCI: chain[i], Link: lookLink(root, chain[i])})
			i++ // the lower port
		default:
			at = t.place(root, at, PCIDevice{Kind: "bridge", PCI: chain[i], Link: lookLink(root, chain[i])})
		}
	}
	l := lookLink(root, e.pci)
	if l != nil && e.kind == "GPU" && l.MaxSpeed > l.Speed {
		l.Rate = linkRate(l.MaxSpeed, l.Width)
	}
	t.place(root, at, PCIDevice{Kind: e.kind, Name: e.name, PCI: e.pci, Link: l})
}

// place adds a device below the one at an index, behind what is there, and returns its
// own. A device is added once.
func (t *Topology) place(root fs.FS, parent int, d PCIDevice) int {
	if i := t.find(d.PCI); i >= 0 {
		return i
	}
	d.Node = numaNode(root, d.PCI)
	at := len(t.Devices)
	if parent >= 0 {
		d.Depth = t.Devices[parent].Depth + 1
		for at = parent + 1; at < len(t.Devices) && t.Devices[at].Depth >= d.Depth; {
			at++
		}
	}
	t.Devices = slices.Insert(t.Devices, at, d)
	return at
}

func (t *Topology) find(pci string) int {
	return slices.IndexFunc(t.Devices, func(d PCIDevice) bool { return d.PCI == pci })
}

// markNarrowest marks the slowest links between the drives and the GPU; without drives,
// between the adapters and the GPU.
func (t *Topology) markNarrowest(root fs.FS, others []endpoint, gpu endpoint) {
	drives := slices.DeleteFunc(slices.Clone(others), func(e endpoint) bool { return e.kind != "drive" })
	if len(drives) == 0 {
		drives = others
	}
	var links []*PCILink
	for _, e := range drives {
		for _, pci := range between(root, e.pci, gpu.pci) {
			if i := t.find(pci); i >= 0 && t.Devices[i].Link != nil && !slices.Contains(links, t.Devices[i].Link) {
				links = append(links, t.Devices[i].Link)
			}
		}
	}
	if len(links) < 2 {
		return
	}
	least := slices.MinFunc(links, func(a, b *PCILink) int { return int(a.Rate - b.Rate) }).Rate
	for _, l := range links {
		l.Narrowest = l.Rate == least
	}
	if !slices.ContainsFunc(links, func(l *PCILink) bool { return !l.Narrowest }) {
		for _, l := range links {
			l.Narrowest = false // all are alike
		}
	}
}

// between are the devices whose links lie between two: themselves, and the bridges that
// they do not share.
func between(root fs.FS, a, b string) []string {
	x, y := sysfs.Above(root, a), sysfs.Above(root, b)
	n := commonLength(x, y)
	return slices.Concat(x[n:], []string{a}, y[n:], []string{b})
}

// lookLink is the link above a device.
func lookLink(root fs.FS, pci string) *PCILink {
	at := path.Join("sys/bus/pci/devices", pci)
	speed := parseSpeed(firstLine(root, at+"/current_link_speed"))
	width, _ := strconv.Atoi(firstLine(root, at+"/current_link_width"))
	if speed == 0 || width == 0 {
		return nil // a virtual device, or a link that is down
	}
	l := &PCILink{Speed: speed, Width: width, MaxSpeed: parseSpeed(firstLine(root, at+"/max_link_speed")), Rate: linkRate(speed, width)}
	l.MaxWidth, _ = strconv.Atoi(firstLine(root, at+"/max_link_width"))
	return l
}

// parseSpeed parses "32.0 GT/s PCIe"; 0 if it is unknown.
func parseSpeed(s string) float64 {
	number, _, _ := strings.Cut(s, " ")
	v, _ := strconv.ParseFloat(number, 64)
	return v
}

// linkRate is what a link carries in bytes per second: 8 of 10 bits up to PCIe 2, then
// 128 of 130.
func linkRate(speed float64, width int) float64 {
	bits := 128.0 / 130
	if speed < 8 {
		bits = 8.0 / 10
	}
	return speed * 1e9 * bits / 8 * float64(width)
}

// topologyOf looks at the machine that a path is on.
func topologyOf(m *machine.Machine, stack *blockstack.Stack, i int) *Topology {
	infos, err := m.GPU.Devices()
	if err != nil || i >= len(infos) {
		return nil
	}
	g := GPU{Info: infos[i]}
	return lookTopology(dev.Of(m).FS(), stack, lookNICs(dev.Of(m), []GPU{g}), g)
}
