package lab

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/lab/internal/job"
)

// The kernel command line: messages on the serial console, exit on a panic, and no
// calibrations that make no sense under emulation.
const kernelArgs = "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable no_timer_check"

// Descriptors that QEMU inherits, in the order of exec.Cmd.ExtraFiles.
const (
	fdStdout = 3 + iota
	fdStderr
	fdControl
	fdMonitor
	fdConsole // not used if the console is a terminal
)

// launch is what a guest's command line depends on besides the Guest.
type launch struct {
	accel    string
	kernel   string
	initrd   string
	images   map[string]string // file of each drive, by id
	shares   []job.Share
	terminal bool   // the console is QEMU's standard input and output
	cable    *cable // to another guest, at the first network card; nil if there is none
}

// args is QEMU's command line for a guest with its defaults filled in.
func (g Guest) args(l launch) []string {
	var a arglist
	a.add("-no-user-config", "-nodefaults", "-display", "none", "-no-reboot")
	a.add("-machine", g.machine(), "-accel", l.accel, "-smp", strconv.Itoa(g.CPUs), "-m", strconv.Itoa(g.Memory))
	a.add("-kernel", l.kernel, "-initrd", l.initrd, "-append", g.append())
	a.device("isa-debug-exit,iobase=%#x,iosize=4", job.ExitPort)
	a.ports(l.terminal)
	if g.IOMMU {
		// Before the devices that it translates for.
		a.device("intel-iommu,intremap=on")
	}
	if g.Nodes < 2 {
		a.drives(g, l)
	}
	for i := range g.NICs {
		a.nic(i, l.cable)
	}
	for _, s := range l.shares {
		a.add("-fsdev", fmt.Sprintf("local,id=%s,path=%s,security_model=none,readonly=on", s.Tag, escape(s.Path)))
		a.device("virtio-9p-pci,fsdev=%s,mount_tag=%s", s.Tag, s.Tag)
	}
	if g.Nodes > 1 {
		// At the end: QEMU would put the other devices on the nodes' buses.
		a.nodes(g)
		a.drives(g, l)
	}
	return a
}

func (a *arglist) drives(g Guest, l launch) {
	a.topology(g)
	for _, d := range g.Drives {
		a.drive(d, l.images)
	}
}

// nic adds a network card. The first one has the cable, if there is one.
func (a *arglist) nic(i int, c *cable) {
	mac := ""
	if i == 0 && c != nil {
		// Datagrams: what is sent to a guest that is not there is lost.
		a.add("-netdev", fmt.Sprintf("dgram,id=net0,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", escape(c.local), escape(c.remote)))
		mac = ",mac=" + c.mac
	} else {
		a.add("-netdev", fmt.Sprintf("hubport,id=net%d,hubid=%d", i, i))
	}
	// No boot ROM to load; an MTU that holds a RoCE payload of 4096 bytes.
	a.device("virtio-net-pci,netdev=net%d,romfile=,host_mtu=4400%s", i, mac)
}

func (g Guest) machine() string {
	switch {
	case g.IOMMU:
		return "q35,kernel-irqchip=split" // interrupt remapping needs the split
	case g.q35():
		return "q35"
	}
	return "pc"
}

func (g Guest) append() string {
	if g.IOMMU {
		return kernelArgs + " intel_iommu=on"
	}
	return kernelArgs
}

type arglist []string

func (a *arglist) add(args ...string) { *a = append(*a, args...) }

func (a *arglist) device(format string, args ...any) {
	a.add("-device", fmt.Sprintf(format, args...))
}

// ports adds the serial ports, each on an inherited socket.
func (a *arglist) ports(terminal bool) {
	a.device("virtio-serial-pci")
	for _, p := range []struct {
		id, name string
		fd       int
	}{
		{"stdout", job.PortStdout, fdStdout},
		{"stderr", job.PortStderr, fdStderr},
		{"control", job.PortControl, fdControl},
	} {
		a.add("-chardev", fmt.Sprintf("socket,id=%s,fd=%d", p.id, p.fd))
		a.device("virtserialport,chardev=%s,name=%s", p.id, p.name)
	}
	a.add("-chardev", fmt.Sprintf("socket,id=monitor,fd=%d", fdMonitor), "-mon", "chardev=monitor,mode=control")
	if terminal {
		// The multiplexer lets Ctrl-A x leave a hung guest.
		a.add("-chardev", "stdio,id=console,mux=on,signal=off", "-mon", "chardev=console,mode=readline")
	} else {
		a.add("-chardev", fmt.Sprintf("socket,id=console,fd=%d", fdConsole))
	}
	a.add("-serial", "chardev:console")
}

// nodes divides processors and memory, and adds a root bus on each node.
func (a *arglist) nodes(g Guest) {
	cpus := g.CPUs / g.Nodes
	for n := range g.Nodes {
		a.add("-object", fmt.Sprintf("memory-backend-ram,id=memory%d,size=%dM", n, g.Memory/g.Nodes))
		a.add("-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=memory%d", n, n*cpus, (n+1)*cpus-1, n))
		a.device("pxb-pcie,id=node%d,bus=pcie.0,bus_nr=%d,numa_node=%d", n, (n+1)*32, n)
	}
}

// topology adds what the drives sit below: for each a hot-plug port of its
// own, on the root complex or on a switch. Slots are numbered over the whole
// guest, since a slot number names a port.
func (a *arglist) topology(g Guest) {
	slot := 0
	hotplug := func(model, id, bus string) {
		slot++
		a.device("%s,id=%s%s,chassis=%d,slot=%d", model, id, bus, slot, slot)
	}
	known := map[string]bool{}
	for _, d := range g.Drives {
		sw := d.Behind
		switch {
		case sw == "":
			continue
		case sw == RootPort:
			bus := ""
			if g.Nodes > 1 {
				bus = fmt.Sprintf(",bus=node%d", d.Node)
			}
			hotplug("pcie-root-port", port(d), bus)
			continue
		case !known[sw]:
			known[sw] = true
			hotplug("pcie-root-port", sw+"-root", "")
			a.device("x3130-upstream,id=%s,bus=%s-root", sw, sw)
		}
		hotplug("xio3130-downstream", port(d), ",bus="+sw)
	}
}

func port(d Drive) string { return d.ID + "-port" }

func (a *arglist) drive(d Drive, images map[string]string) {
	if d.Rate > 0 {
		a.add("-object", fmt.Sprintf("throttle-group,id=%s-rate,x-bps-read=%d", d.ID, d.Rate))
	}
	node, err := json.Marshal(d.block(images))
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	a.add("-blockdev", string(node))
	dev := fmt.Sprintf("nvme,id=%s,serial=%s,drive=%s-disk,logical_block_size=%d,physical_block_size=%d", d.ID, d.ID, d.ID, d.Sector, d.Sector)
	if d.CMB > 0 {
		dev += fmt.Sprintf(",cmb_size_mb=%d", d.CMB)
	}
	if d.Behind != "" {
		dev += ",bus=" + port(d)
	}
	a.device("%s", dev)
}

type node map[string]any

// block returns the drive's chain of block nodes.
func (d Drive) block(images map[string]string) node {
	n := file(images[d.ID])
	if len(d.Faults) > 0 {
		n = node{"driver": "blkdebug", "image": n, "inject-error": d.faults()}
	}
	if d.Rate > 0 {
		n = node{"driver": "throttle", "throttle-group": d.ID + "-rate", "file": n}
	}
	if d.LogTo != "" {
		// The head of the log counts its entries: a reader in the same guest needs
		// it up to date.
		n = node{"driver": "blklogwrites", "file": n, "log": file(images[d.LogTo]), "log-sector-size": d.Sector, "log-super-update-interval": 1}
	}
	return node{"driver": "raw", "node-name": d.ID + "-disk", "file": n}
}

// file is a drive's image. It is in the host's page cache, which survives a killed
// QEMU, so flushing it to the host's disk is not needed. A log is opened twice, by its
// writer and as a drive, so images are not locked.
func file(image string) node {
	return node{"driver": "file", "filename": image, "locking": "off", "cache": node{"direct": false, "no-flush": true}}
}

func (d Drive) faults() []node {
	var ns []node
	for _, f := range d.Faults {
		ns = append(ns, node{"event": "none", "iotype": f.Op, "errno": 5, "sector": f.Sector, "once": false})
	}
	return ns
}

// escape writes a path into QEMU's option syntax, where a comma is doubled.
func escape(path string) string { return strings.ReplaceAll(filepath.Clean(path), ",", ",,") }
