package nvme_test

import (
	"context"
	"fmt"
	"log"

	"github.com/culvert-io/culvert/nvme"
	"github.com/culvert-io/culvert/soft"
)

// Write to a drive and read back, from GPU memory to GPU memory.
func Example() {
	m, err := soft.New(soft.Config{Memory: 64 << 20, Drives: []soft.Drive{{Size: 1 << 20}}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	c, err := nvme.Open(m.Transport(0), nvme.Config{}) // or of vfio.Open, libnvm.Open
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	dev, err := m.GPU.Open(0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	buf, err := c.AllocGPU(dev, 64<<10)
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	ctx, addr, ns := context.Background(), buf.Span().Addr(), c.Namespaces()[0]
	if err := dev.CopyIn(addr, []byte("hello, drive")); err != nil {
		log.Fatal(err)
	}
	if err := ns.Write(ctx, buf, 0, 0, 1); err != nil { // 1 block, to block 0
		log.Fatal(err)
	}
	if err := dev.Fill(addr, 0, 1, 64<<10); err != nil {
		log.Fatal(err)
	}
	if err := ns.Read(ctx, buf, 0, 0, 1); err != nil {
		log.Fatal(err)
	}
	text := make([]byte, 12)
	if err := dev.CopyOut(text, addr); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	// Output: hello, drive
}
