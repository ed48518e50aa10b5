// Pinned shows that pinned host memory has one address: the CPU writes it, a
// GPU operation gets the same pointer as a device pointer, and the CPU sees
// what it did.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout); err != nil {
		log.Fatal("pinned: ", err)
	}
}

func run(w io.Writer) error {
	m, err := machine.Open()
	if err != nil {
		return err
	}
	dev, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()                 // frees the memory, too
	context := fmt.Sprintf("%p", dev) // the software GPU's is a Go object
	if c, ok := dev.(interface{ Context() uintptr }); ok {
		context = fmt.Sprintf("%#x", c.Context())
	}
	fmt.Fprintf(w, "context = %s\n", context)

	device, err := dev.Alloc(gpu.KindDevice, 100, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "device_memory_pointer = %v\n", device)

	pinned, err := dev.Alloc(gpu.KindHost, 100, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "host_page_locked_memory = %v\n", pinned)

	// The CPU's view of it is a slice.
	word := gpu.HostBytes(pinned, 100)
	binary.LittleEndian.PutUint32(word, math.Float32bits(123))
	fmt.Fprintf(w, "host_page_locked_memory[0] = %f\n", float(word))

	// For the GPU it is an address like any other.
	if err := dev.Fill(pinned, math.Float32bits(555), 4, 1); err != nil {
		return err
	}
	fmt.Fprintf(w, "host_page_locked_memory[0] = %f\n", float(word))
	return nil
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
