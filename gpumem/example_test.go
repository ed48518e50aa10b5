package gpumem_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpumem"
	"github.com/culvert-io/culvert/machine"
)

// Lock GPU memory and get the physical addresses of its pages.
func Example() {
	m, err := machine.OpenAs(machine.Soft) // machine.Open() uses a GPU if there is one
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	dev, err := m.GPU.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	const size = 4 * gpumem.PageSize
	addr, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Free(addr)
	if err := dev.SetSyncMemops(addr, true); err != nil {
		log.Fatal(err)
	}

	c, err := gpumem.Open(m)
	if err != nil {
		log.Fatal(err)
	}
	l, err := c.Lock(addr, size)
	if err != nil {
		log.Fatal(err)
	}
	pages, err := l.Pages()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(pages), "pages of", gpumem.PageSize, "bytes")
	if err := errors.Join(l.Unlock(), c.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: 4 pages of 65536 bytes
}
