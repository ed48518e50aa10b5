package blockstack

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/culvert-io/culvert/internal/sysfs"
)

// number adds the block device with a number such as "259:1".
func (w *walk) number(dev string, depth int) error {
	return w.follow("sys/dev/block/"+dev, depth)
}

// device adds the block device with a kernel name such as "nvme0n1p1".
func (w *walk) device(name string, depth int) error {
	return w.follow("sys/class/block/"+name, depth)
}

// follow adds the block device that a link of sysfs leads to.
func (w *walk) follow(link string, depth int) error {
	target, err := fs.ReadLink(w.root, link)
	if err != nil {
		return fmt.Errorf("no block device %s: %w", path.Base(link), err)
	}
	return w.at(path.Join(path.Dir(link), target), depth)
}

// at adds the block device with a directory of sysfs, and what is below.
func (w *walk) at(dir string, depth int) error {
	l := Layer{Depth: depth, Name: path.Base(dir), id: w.text(dir+"/dev") + " " + w.text(dir+"/diskseq")}
	switch {
	case w.exists(dir + "/partition"):
		l.Kind, l.id = Partition, l.id+" "+w.text(dir+"/start")+" "+w.text(dir+"/size")
		if err := w.add(l); err != nil {
			return err
		}
		return w.at(path.Dir(dir), depth+1)
	case w.exists(dir + "/dm"):
		return w.mapper(l, dir)
	case w.exists(dir + "/md"):
		return w.raid(l, dir)
	case virtual(l.Name) != nil:
		return w.virtual(l, dir)
	}
	return w.drive(l, dir)
}

// slaves are the names of the devices below one.
func (w *walk) slaves(dir string) (names []string) {
	list, _ := fs.ReadDir(w.root, dir+"/slaves")
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// stacked adds a layer and the devices that it stands on.
func (w *walk) stacked(l Layer, dir string) error {
	slaves := w.slaves(dir)
	if len(slaves) == 0 && l.Changes == "" {
		l.Changes, l.Fix = "has no devices below it", "start or repair it"
	}
	if err := w.add(l); err != nil {
		return err
	}
	for _, name := range slaves {
		if err := w.device(name, l.Depth+1); err != nil {
			return err
		}
	}
	return nil
}

// A virtualDriver keeps the bytes of its devices where no drive of this machine moves
// them from.
type virtualDriver struct{ prefix, what, changes string }

var virtualDrivers = []virtualDriver{
	{"loop", "loop", "reads and writes a file through host memory"},
	{"nbd", "nbd", "sends the host's pages over the network"},
	{"rbd", "rbd", "sends the host's pages over the network"},
	{"drbd", "drbd", "sends the host's pages over the network"},
	{"bcache", "bcache", "keeps its own copies of blocks on a cache drive"},
	{"zram", "zram", "compresses into host memory"},
	{"ram", "brd", "keeps the blocks in host memory"},
	{"nullb", "null_blk", "keeps the blocks in host memory, or none"},
	{"pmem", "nd_pmem", "is memory: the CPU copies"},
	{"ublkb", "ublk", "hands the host's pages to a process"},
	{"dasd", "dasd", "is not known to pass bytes unchanged"},
}

// virtual is the driver of a device name, nil if it is a drive's.
func virtual(name string) *virtualDriver {
	for i := range virtualDrivers {
		d := &virtualDrivers[i]
		if rest, ok := strings.CutPrefix(name, d.prefix); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			return d
		}
	}
	return nil
}

func (w *walk) virtual(l Layer, dir string) error {
	d := virtual(l.Name)
	l.Kind, l.Type, l.Changes, l.Fix = Virtual, d.what, d.changes, "put the file on a drive of this machine"
	if file := w.text(dir + "/loop/backing_file"); file != "" {
		l.Detail = "of " + file
	}
	return w.stacked(l, dir)
}

// drive adds a drive, or, for a namespace with several paths, its paths. What stands on no
// device, such as a volume of ZFS, is none.
func (w *walk) drive(l Layer, dir string) error {
	w.ofDrive(&l, dir)
	if strings.Contains(dir, "/nvme-subsystem/") {
		return w.nvmePaths(l, dir)
	}
	if _, err := fs.Lstat(w.root, dir+"/device"); err != nil && strings.HasPrefix(dir, "sys/devices/virtual/") {
		l.Kind, l.Fix = Virtual, "put the file on a drive of this machine"
		l.Changes = cmp.Or(l.Changes, "has no device of its own, and is not known to pass bytes unchanged")
		return w.stacked(l, dir)
	}
	if softwareISCSI(dir) {
		l.Kind, l.Type, l.Fix = Virtual, "iscsi", "put the file on a drive of this machine"
		l.Changes = cmp.Or(l.Changes, "sends the host's pages over the network")
		return w.stacked(l, dir)
	}
	l.Kind = Drive
	l.Type = w.driver(dir)
	if l.PCI = w.pci(dir, dir+"/device"); l.PCI != "" {
		l.Detail = strings.TrimPrefix(l.Detail+", "+l.PCI, ", ")
		l.adapter = sysfs.Link(w.root, sysfs.PCI(l.PCI)+"/driver")
	}
	if err := w.add(l); err != nil || l.Type != nvmeModule("rdma") {
		return err
	}
	return w.adapter(w.text(dir+"/device/address"), l.Depth+1)
}

// softwareISCSI reports a drive that this host reaches by iSCSI over its own sockets. Its kernel
// module is the one of all SCSI drives. An adapter that speaks iSCSI is below its PCI address.
func softwareISCSI(dir string) bool {
	return strings.HasPrefix(dir, "sys/devices/platform/host") && strings.Contains(dir, "/session")
}

// pci is the address of a drive on PCIe: that of the directory that it is in, or what its
// NVMe controller says.
func (w *walk) pci(dir, controller string) string {
	if pci := lastPCI(dir); pci != "" {
		return pci
	}
	if w.text(controller+"/transport") != "pcie" {
		return ""
	}
	return lastPCI(w.text(controller + "/address"))
}

// lastPCI is the last PCI address in a sysfs path, that of the drive's controller.
func lastPCI(dir string) string {
	last := ""
	for part := range strings.SplitSeq(dir, "/") {
		if len(part) == len("0000:3d:00.0") && part[4] == ':' && part[7] == ':' && part[10] == '.' {
			last = part
		}
	}
	return last
}

// driver is the kernel module of a drive, as nvidia-fs names it.
func (w *walk) driver(dir string) string {
	if t := w.text(dir + "/device/transport"); t != "" {
		return nvmeModule(t)
	}
	name := cmp.Or(sysfs.Link(w.root, dir+"/device/driver"), sysfs.Link(w.root, sysfs.PCI(lastPCI(dir))+"/driver"), "unknown")
	if name == "sd" {
		return "scsi_mod"
	}
	return name
}

// nvmeModule is the module of a transport of NVMe.
func nvmeModule(transport string) string {
	if transport == "pcie" {
		return "nvme"
	}
	return "nvme_" + transport
}

// nvmePaths adds a namespace of the kernel's own multipath, which passes requests to
// one of its controllers.
func (w *walk) nvmePaths(l Layer, dir string) error {
	l.Kind = Multipath
	subsystem := path.Dir(dir)
	list, err := fs.ReadDir(w.root, subsystem)
	if err != nil {
		return err
	}
	var paths []Layer
	for _, e := range list {
		transport := w.text(path.Join(subsystem, e.Name(), "transport"))
		if transport == "" {
			continue
		}
		p := Layer{Depth: l.Depth + 1, Kind: Drive, Name: e.Name(), Type: nvmeModule(transport)}
		p.Detail = w.text(path.Join(subsystem, e.Name(), "address"))
		p.PCI = w.pci("", path.Join(subsystem, e.Name()))
		paths = append(paths, p)
	}
	if len(paths) == 0 && l.Changes == "" {
		l.Changes, l.Fix = "has no path to a drive", "connect the drive again"
	}
	if err := w.add(l); err != nil {
		return err
	}
	for _, p := range paths {
		if err := w.add(p); err != nil {
			return err
		}
		if p.Type == nvmeModule("rdma") {
			if err := w.adapter(p.Detail, p.Depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofDrive adds what a drive's queue changes.
func (w *walk) ofDrive(l *Layer, dir string) {
	if zoned := w.text(dir + "/queue/zoned"); zoned != "" && zoned != "none" {
		l.Detail = zoned
		l.Changes, l.Fix = "accepts writes only in order, zone by zone", "put the file on a drive without zones"
	}
	format := w.text(dir + "/integrity/format")
	if format == "" || format == "none" || format == "nop" {
		return
	}
	if w.text(dir+"/integrity/read_verify") == "1" || w.text(dir+"/integrity/write_generate") == "1" {
		l.Changes = "has the kernel check and compute protection information (" + format + ") of the host's pages"
		l.Fix = fmt.Sprintf("echo 0 >/sys/block/%[1]s/integrity/read_verify; echo 0 >/sys/block/%[1]s/integrity/write_generate", l.Name)
	}
}
