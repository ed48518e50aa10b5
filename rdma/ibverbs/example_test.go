package ibverbs_test

import (
	"fmt"
	"log"

	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/ibverbs"
)

// The adapters of a host, and the address that peers should use on each first port.
func Example() {
	p, err := ibverbs.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	list, err := p.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, info := range list {
		dev, err := p.Open(info.Name)
		if err != nil {
			log.Fatal(err)
		}
		port, err := dev.Port(1)
		if err != nil {
			log.Fatal(err)
		}
		table, err := dev.GIDs(1)
		if err != nil {
			log.Fatal(err)
		}
		gid, err := rdma.ChooseGID(table, port.Link, rdma.GIDWant{})
		fmt.Println(info.Name, info.PCI, port.State, port.Link, gid.Why, err)
		_ = dev.Close()
	}
}
