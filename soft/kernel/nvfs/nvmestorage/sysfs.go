package nvmestorage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/soft/block"
	"github.com/culvert-io/culvert/soft/kernel"
)

func itoa(n int) string { return strconv.Itoa(n) }

// first is the number in names of the emulated devices: real machines have fewer.
const first = 90

// Show adds the layers and the drive to /sys, and places all files on them. pci is the
// address of the drive.
func (d *Driver) Show(o *kernel.OS, pci string) {
	show(o, d.layers, pci)
}

// Hide shows the drive without its layers, as a hypervisor that encrypts does.
func (d *Driver) Hide(o *kernel.OS, pci string) { show(o, nil, pci) }

func show(o *kernel.OS, layers []block.Layer, pci string) {
	fileSystem := "ext4"
	for i, l := range layers {
		switch l.Name {
		case "btrfs", "compress":
			fileSystem = "btrfs"
		case "virtio":
			device(o, "252:"+itoa(first), "vd"+itoa(first), kernel.Tree{"dev": text("252:" + itoa(first)), "device/vendor": text("0x1af4")})
			o.Link("sys/devices/virtual/block/vd"+itoa(first)+"/device/driver", "../../../../../bus/virtio/drivers/virtio_blk")
		default:
			stacked(o, l.Name, i, below(layers[i+1:], i+1))
		}
	}
	for i := range 2 { // RAID needs two, which are namespaces of one controller
		number, name := fmt.Sprintf("259:%d", first+i), fmt.Sprintf("nvme%dn1", first+i)
		device(o, number, name, kernel.Tree{"dev": text(number), "device/transport": text("pcie"), "device/address": text(pci), "queue/zoned": text("none")})
	}
	number, _ := top(layers, 0)
	if fileSystem == "btrfs" {
		number = "0:" + itoa(first) // one of its own
	}
	o.Place(fileSystem, number)
}

// top is the first block device of layers.
func top(layers []block.Layer, i int) (number, name string) {
	if len(layers) == 0 {
		return fmt.Sprintf("259:%d", first), fmt.Sprintf("nvme%dn1", first)
	}
	switch layers[0].Name {
	case "btrfs", "compress":
		return top(layers[1:], i+1)
	case "virtio":
		return "252:" + itoa(first), "vd" + itoa(first)
	case "raid0", "raid1", "raid5", "raid0-half", "raid1-half":
		return "9:" + itoa(first+i), "md" + itoa(first+i)
	}
	return "253:" + itoa(first+i), "dm-" + itoa(first+i)
}

// below are the devices that a layer stands on.
func below(rest []block.Layer, i int) []string {
	_, name := top(rest, i)
	return []string{name}
}

// stacked adds a device of device mapper or md.
func stacked(o *kernel.OS, layer string, i int, slaves []string) {
	number, name := top([]block.Layer{{Name: layer}}, i)
	t := kernel.Tree{"dev": text(number)}
	switch layer {
	case "raid0", "raid1", "raid5", "raid0-half", "raid1-half":
		level, _, _ := strings.Cut(layer, "-") // both drives look alike
		t["md/level"], t["md/array_state"] = text(level), text("clean")
		if slaves[0] == fmt.Sprintf("nvme%dn1", first) {
			slaves = append(slaves, fmt.Sprintf("nvme%dn1", first+1))
		}
	default:
		uuid := map[string]string{"crypt": "CRYPT-LUKS2-culvert", "linear": "LVM-culvert"}[layer]
		t["dm/name"], t["dm/uuid"], t["dm/suspended"] = text("culvert"), text(uuid), text("0")
	}
	for _, s := range slaves {
		t["slaves/"+s] = text("")
	}
	device(o, number, name, t)
}

func device(o *kernel.OS, number, name string, t kernel.Tree) {
	dir := "devices/virtual/block/" + name
	o.Mount("sys/"+dir, t)
	o.Link("sys/dev/block/"+number, "../../"+dir)
	o.Link("sys/class/block/"+name, "../../"+dir)
}

func text(s string) func() []byte { return func() []byte { return []byte(s + "\n") } }
