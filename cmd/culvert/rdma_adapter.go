package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// adapterAt finds the network adapter with an IP address.
func adapterAt(ip netip.Addr) (rdma.Provider, string, error) {
	p, err := ibverbs.Open()
	if err != nil {
		return nil, "", err
	}
	list, err := p.Devices()
	if err != nil {
		return nil, "", err
	}
	var known []string
	for _, info := range list {
		addrs, err := addresses(p, info.Name)
		if err != nil {
			return nil, "", err
		}
		for _, a := range addrs {
			if a == ip.Unmap() {
				return p, info.Name, nil
			}
			known = append(known, fmt.Sprintf("%v (%s)", a, info.Name))
		}
	}
	if len(known) == 0 {
		return nil, "", fmt.Errorf("provider ibverbs: no RDMA device has an address (fix: culvert check shows what is missing)")
	}
	return nil, "", usageError{fmt.Errorf("provider ibverbs: no RDMA device has the address %v (fix: --address with one of %s)", ip, strings.Join(known, ", "))}
}

// addresses are those of the active ports of a device.
func addresses(p rdma.Provider, name string) ([]netip.Addr, error) {
	dev, err := p.Open(name)
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	attr, err := dev.Attr()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for n := 1; n <= attr.Ports; n++ {
		port, err := dev.Port(n)
		if err != nil {
			return nil, err
		}
		if port.State != rdma.PortActive {
			continue
		}
		table, err := dev.GIDs(n)
		if err != nil {
			return nil, err
		}
		for _, g := range table {
			list = append(list, g.GID.Addr())
		}
	}
	return list, nil
}
