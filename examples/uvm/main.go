// Uvm has 512 x 1000 GPU threads add one each to a number that the CPU then reads: in
// managed memory, which migrates between the two, and, if the GPU can access it, on
// the Go heap.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/machine"
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout); err != nil {
		log.Fatal("uvm: ", err)
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
	defer dev.Close()

	fmt.Fprintln(w, "managed memory")
	managed, err := dev.Alloc(gpu.KindManaged, 4, 0)
	if err != nil {
		return err
	}
	if err := count(w, dev, gpu.HostBytes(managed, 4)); err != nil {
		return err
	}

	pageable, err := dev.Attribute(gpu.AttrPageableMemoryAccess)
	if err != nil {
		return err
	}
	if pageable == 0 {
		fmt.Fprintf(w, "heap memory: this GPU cannot access it (%v is 0)\n", gpu.AttrPageableMemoryAccess)
		return nil
	}
	fmt.Fprintln(w, "heap memory")
	// A whole page, so that nothing else of the heap migrates with it.
	return count(w, dev, make([]byte, 4096))
}

// count has all threads add one to the number at the start of b.
func count(w io.Writer, dev gpu.Device, b []byte) error {
	binary.LittleEndian.PutUint32(b, 0)
	if err := kernels.Call(dev, "culvert_counter", gpu.Dim{X: 512}, gpu.Dim{X: 1000}, gpu.HostAddr(b)); err != nil {
		return err
	}
	fmt.Fprintf(w, "Results: %d\n", binary.LittleEndian.Uint32(b))
	runtime.KeepAlive(b) // HostAddr does not keep b alive
	return nil
}
