package soft_test

import (
	"fmt"
	"log"

	"github.com/culvert-io/culvert/soft"
)

// Build a machine with two GPUs and a drive, without nvidia-fs.
func ExampleNew() {
	m, err := soft.New(soft.Config{
		GPUs:    2,
		Memory:  64 << 20,
		Drives:  []soft.Drive{{Size: 16 << 20}},
		Without: []string{"nvidia-fs"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	gpus, err := m.GPU.Devices()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(gpus), "GPUs,", len(m.Drives()), "drive, in use:", m.InUse())
	// Output: 2 GPUs, 1 drive, in use: <nil>
}

func ExampleParseConfig() {
	cfg, err := soft.ParseConfig("gpus=2,memory=1G,model=small-bar")
	fmt.Println(cfg.GPUs, cfg.Memory>>20, cfg.Model, err)
	// Output: 2 1024 small-bar <nil>
}
