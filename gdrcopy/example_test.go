package gdrcopy_test

import (
	"fmt"
	"log"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

// Write GPU memory with the CPU.
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
	addr, err := dev.Alloc(gpu.KindDevice, 1<<20, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Free(addr)

	s, err := gdrcopy.Open(m, dev)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	b, err := s.Pin(addr, 4096)
	if err != nil {
		log.Fatal(err)
	}
	if err := b.Map(); err != nil {
		log.Fatal(err)
	}
	if err := b.CopyTo(0, []byte("hello")); err != nil {
		log.Fatal(err)
	}

	text := make([]byte, 5)
	if err := dev.CopyOut(text, addr); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s by %s\n", text, s.Info().Backend)
	// Output: hello by gdrdrv 2.6
}
