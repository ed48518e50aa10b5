package cufile_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

// Read a file into GPU memory.
func Example() {
	file, err := os.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if _, err := file.WriteString("hello, GPU"); err != nil {
		log.Fatal(err)
	}

	m, err := machine.OpenAs(machine.Soft) // machine.Open() uses a GPU if there is one
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		log.Fatal(err)
	}
	defer drv.Close()
	f, err := drv.Register(file)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	dev, err := drv.Device(0)
	if err != nil {
		log.Fatal(err)
	}
	addr, err := dev.Alloc(gpu.KindDevice, 4096, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Free(addr)
	buf, err := drv.RegisterBuffer(addr, 4096)
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	receipt, err := f.ReadAt(context.Background(), buf.Span(), 0)
	if err != nil {
		log.Fatal(err)
	}
	text := make([]byte, receipt.Bytes)
	if err := dev.CopyOut(text, addr); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes: %s\n", receipt.Bytes, text)
	// Output: 10 bytes: hello, GPU
}

// Refuse fallback: transfers use the required route or fail.
func ExampleFile_Require() {
	m, err := machine.OpenAs(machine.Soft)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		log.Fatal(err)
	}
	defer drv.Close()
	file, err := os.Open("doc.go")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	f, err := drv.Register(file)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	fmt.Println("ring:", f.Require(0, route.Ring))
	var refused *route.RequireError
	if err := f.Require(0, route.Vendor); errors.As(err, &refused) {
		fmt.Println("vendor:", refused.Declined[0].Evidence)
	}
	// Output:
	// ring: <nil>
	// vendor: NVIDIA's libcufile does not support the software machine
}

// Run several requests as one batch.
func ExampleDriver_Do() {
	m, err := machine.OpenAs(machine.Soft)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		log.Fatal(err)
	}
	defer drv.Close()
	file, err := os.Open("doc.go")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	f, err := drv.Register(file)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	dev, err := drv.Device(0)
	if err != nil {
		log.Fatal(err)
	}
	addr, err := dev.Alloc(gpu.KindDevice, 32, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Free(addr)

	mem := gpu.Span{Base: addr, Len: 32}
	reqs := []cufile.Request{
		{Dir: route.Read, File: f, Mem: mem.Slice(0, 16), Off: 0},
		{Dir: route.Read, File: f, Mem: mem.Slice(16, 16), Off: 100},
	}
	receipts := make([]route.Receipt, len(reqs))
	if err := drv.Do(context.Background(), reqs, receipts); err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipts[0].Bytes + receipts[1].Bytes)
	// Output: 32
}
