// Pinned shows that pinned host memory has one address: the CPU writes it, a GPU
// operation uses the same pointer, and the CPU sees the result.
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
	defer dev.Close()                 // also frees the memory
	context := fmt.Sprintf("%p", dev) // a Go object for the software GPU
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

	// For the CPU it is a slice.
	word := gpu.HostBytes(pinned, 100)
	binary.LittleEndian.PutUint32(word, math.Float32bits(123))
	fmt.Fprintf(w, "host_page_locked_memory[0] = %f\n", float(word))

	// For the GPU it is an address.
	if err := dev.Fill(pinned, math.Float32bits(555), 4, 1); err != nil {
		return err
	}
	fmt.Fprintf(w, "host_page_locked_memory[0] = %f\n", float(word))
	return nil
}

func float(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
