package ibverbs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/culvert-io/culvert/internal/dl"
	"github.com/culvert-io/culvert/rdma"
)

// gidsOneByOne is for libraries without the table: types and interfaces come from sysfs.
func (d *Device) gidsOneByOne(port int, attr rdma.PortAttr) ([]rdma.GIDEntry, error) {
	var list []rdma.GIDEntry
	attrs := filepath.Join("/sys/class/infiniband", d.info.Name, "ports", strconv.Itoa(port), "gid_attrs")
	for i := range attr.GIDs {
		g := new(rdma.GID)
		if err := d.call(d.lib.queryGID, uintptr(port), uintptr(i), dl.Ref(g)); err != nil {
			return nil, fmt.Errorf("read GID %d of %s: %w", i, d.info.Name, err)
		}
		if g.IsZero() {
			continue
		}
		e := rdma.GIDEntry{GID: *g, Index: i, Port: port, Type: gidType(attr.Link, firstLine(filepath.Join(attrs, "types", strconv.Itoa(i))))}
		e.NetDev = firstLine(filepath.Join(attrs, "ndevs", strconv.Itoa(i)))
		list = append(list, e)
	}
	return list, nil
}

// gidType is the type that sysfs calls by a name.
func gidType(link rdma.LinkLayer, name string) rdma.GIDType {
	switch {
	case link != rdma.LinkEthernet:
		return rdma.GIDInfiniBand
	case name == "RoCE v2":
		return rdma.GIDRoCEv2
	}
	return rdma.GIDRoCEv1 // sysfs says "IB/RoCE v1"
}

// firstLine is the first line of a small file; "" if there is none.
func firstLine(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
