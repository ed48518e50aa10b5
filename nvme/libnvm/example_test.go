package libnvm_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/nvme/libnvm"
	"github.com/culvert-io/culvert/soft"
)

// Open the first drive that is bound to libnvm.
func ExampleOpen() {
	cfg := soft.Config{Memory: 64 << 20, Drives: []soft.Drive{{Size: 1 << 20}}}
	m, err := machine.FromSoft(cfg, "example") // machine.Open() for real drives
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	path := libnvm.Paths(m)[0]
	t, err := libnvm.Open(m, path)
	if err != nil {
		log.Fatal(err)
	}
	c, err := nvme.Open(t, nvme.Config{})
	if err != nil {
		log.Fatal(errors.Join(err, t.Close()))
	}
	defer c.Close()
	fmt.Println(path, c.Namespaces()[0].Blocks(), "blocks")
	// Output: /dev/libnvm0 2048 blocks
}
