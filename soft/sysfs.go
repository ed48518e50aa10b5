package soft

import (
	"path"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/soft/internal/topology"
	"github.com/culvert-io/culvert/soft/kernel"
)

// A link is the PCIe link above a device, as /sys shows it.
type link struct {
	speed string
	width int
}

// The links that such devices have. Nothing on the fabric is that fast.
var (
	gpuLink   = link{"32.0 GT/s PCIe", 16}
	driveLink = link{"16.0 GT/s PCIe", 4}
)

// showGPUs adds the GPUs and the switches above them to /sys.
func (m *Machine) showGPUs() {
	for _, p := range m.topology.Places {
		m.showPCI(p, gpuLink)
		for i, port := range p.Above {
			m.showFunction(append([]string{hostBridge}, p.Above[:i]...), port, gpuLink)
		}
	}
}

// hostBridge is the directory of the only one.
const hostBridge = "pci0000:00"

// showPCI adds a device to /sys. It has no max_link_speed, because no other speed can be
// had.
func (m *Machine) showPCI(p *topology.Place, l link) {
	m.showFunction(append([]string{hostBridge}, p.Above...), p.PCI, l)
}

func (m *Machine) showFunction(above []string, pci string, l link) {
	dir := path.Join("devices", strings.Join(above, "/"), pci)
	for name, value := range map[string]string{"current_link_speed": l.speed, "current_link_width": strconv.Itoa(l.width), "numa_node": "0"} {
		m.os.Mount(path.Join("sys", dir, name), kernel.Tree{".": func() []byte { return []byte(value + "\n") }})
	}
	m.os.Link("sys/bus/pci/devices/"+pci, "../../../"+dir)
}
