package vfio_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/vfio"
)

// Drive a controller that is bound to vfio-pci, with DMA to GPU memory.
func ExampleOpen() {
	m, err := machine.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := m.GPU.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	t, err := vfio.Open("0000:01:00.0", vfio.Config{View: vfio.BAR1(m, dev)})
	if err != nil {
		log.Fatal(err)
	}
	c, err := nvme.Open(t, nvme.Config{})
	if err != nil {
		log.Fatal(errors.Join(err, t.Close()))
	}
	defer c.Close()
	fmt.Println(c.Name())
}
