package blockstack

import (
	"io/fs"
	"net"
	"net/netip"
	"path"
	"strings"
)

// adapter adds the network adapter through which a controller is reached, if its address
// tells it: "traddr=192.0.2.1,trsvcid=4420,host_iface=eth0".
func (w *walk) adapter(address string, depth int) error {
	at := map[string]string{}
	for _, item := range strings.Split(address, ",") {
		key, value, _ := strings.Cut(item, "=")
		at[key] = value
	}
	name := w.findAdapter(at["host_iface"], at["host_traddr"])
	if name == "" {
		return nil
	}
	l := Layer{Depth: depth, Kind: Adapter, Name: name}
	for _, line := range strings.Split(w.text(path.Join(infiniband, name, "device/uevent")), "\n") {
		if pci, ok := strings.CutPrefix(line, "PCI_SLOT_NAME="); ok {
			l.PCI, l.Detail = pci, pci+", "
		}
	}
	l.Detail += "to " + net.JoinHostPort(at["traddr"], at["trsvcid"])
	return w.add(l)
}

const infiniband = "sys/class/infiniband"

// findAdapter is the RDMA device with an interface or an address; if neither is known, the
// only one of the machine.
func (w *walk) findAdapter(iface, addr string) string {
	list, _ := fs.ReadDir(w.root, infiniband)
	if iface == "" && addr == "" && len(list) == 1 {
		return list[0].Name()
	}
	for _, e := range list {
		if w.hasAddress(path.Join(infiniband, e.Name()), iface, addr) {
			return e.Name()
		}
	}
	return ""
}

// hasAddress looks for an interface or an address in the GID tables of a device.
func (w *walk) hasAddress(dir, iface, addr string) bool {
	gids, _ := fs.Glob(w.root, dir+"/ports/*/gids/*")
	want, werr := netip.ParseAddr(addr)
	for _, gid := range gids {
		port, index := path.Dir(path.Dir(gid)), path.Base(gid)
		if iface != "" && w.text(path.Join(port, "gid_attrs/ndevs", index)) == iface {
			return true
		}
		if have, err := netip.ParseAddr(w.text(gid)); err == nil && werr == nil && have.Unmap() == want.Unmap() {
			return true
		}
	}
	return false
}
