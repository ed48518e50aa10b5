// Mapped has a kernel read and write host memory in place, through its device
// pointer, without a copy: memory that the driver allocated, and registered memory of
// the program.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/machine"
)

// The text is at the start of a page. The GPU writes its length behind it.
const (
	size     = 4096
	lengthAt = 1024
)

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout); err != nil {
		log.Fatal("mapped: ", err)
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

	fmt.Fprintln(w, "allocated by the driver:")
	a, err := dev.Alloc(gpu.KindHost, size, gpu.HostMapped)
	if err != nil {
		return err
	}
	if err := reverse(w, dev, gpu.HostBytes(a, size), "culvert"); err != nil {
		return err
	}

	fmt.Fprintln(w, "registered in place:")
	own, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(own)
	host := uintptr(gpu.HostAddr(own))
	if err := dev.Register(host, size, gpu.RegisterDeviceMap); err != nil {
		return err
	}
	defer dev.Unregister(host)
	return reverse(w, dev, own, "stream")
}

// reverse has the GPU reverse a text in host memory.
func reverse(w io.Writer, dev gpu.Device, mem []byte, text string) error {
	p, err := dev.DevicePointer(uintptr(gpu.HostAddr(mem)))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "  host_pointer = %v, device_pointer = %v\n", gpu.HostAddr(mem), p)
	copy(mem, text+"\x00")
	if err := kernels.Call(dev, "strrev", gpu.Dim{}, gpu.Dim{}, p, p+lengthAt); err != nil {
		return err
	}
	after, _, _ := bytes.Cut(mem, []byte{0})
	fmt.Fprintf(w, "  %s -> %s, %d bytes\n", text, after, binary.LittleEndian.Uint32(mem[lengthAt:]))
	return nil
}
