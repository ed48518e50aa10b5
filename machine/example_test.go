package machine_test

import (
	"fmt"
	"log"

	"github.com/culvert-io/culvert/machine"
)

// Open uses the real machine if it has an NVIDIA GPU, and the software machine
// otherwise.
func ExampleOpen() {
	m, err := machine.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if m.Soft {
		fmt.Println("no GPU here:", m.Why)
	}
}

func ExampleOpenAs() {
	m, err := machine.OpenAs(machine.Soft)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	gpus, err := m.GPU.Devices()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(gpus[0].Name)
	// Output: NVIDIA H200 (software)
}
