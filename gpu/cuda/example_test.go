package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/gpu/cuda"
)

// Most programs use machine.Open, which falls back to the software machine.
func ExampleOpen() {
	drv, err := cuda.Open()
	if errors.Is(err, cuda.ErrNoLibrary) {
		fmt.Println("no NVIDIA driver")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	gpus, err := drv.Devices()
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range gpus {
		fmt.Println(g.Name, g.PCI)
	}
}
