// Fill shows a process without driver library that fills GPU memory. The parent
// allocates memory and exports it as a descriptor. The child inherits the descriptor,
// maps the memory through BAR1 and writes it. The parent checks the result on the GPU.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/culvert-io/culvert/gdrcopy"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

func main() {
	log.SetFlags(0)
	size := flag.Uint64("bytes", 64<<20, "how much memory to fill")
	child := flag.String("child", "", "be the child for the GPU at this PCI address; the memory is descriptor 3")
	flag.Parse()
	var err error
	if *child != "" {
		err = fill(os.Stdout, nil, *child, os.NewFile(3, "exported memory"), *size)
	} else {
		err = parent(os.Stdout, *size)
	}
	if err != nil {
		log.Fatal("fill: ", err)
	}
}

func parent(out io.Writer, size uint64) error {
	m, err := machine.Open()
	if err != nil {
		return err
	}
	return run(out, m, size)
}

func run(out io.Writer, m *machine.Machine, size uint64) (err error) {
	d, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer d.Close()
	a, err := d.Alloc(gpu.KindVirtual, size, 0)
	if err != nil {
		return err
	}
	defer d.Free(a)
	f, err := d.Export(a, size, gpu.ExportPosixFD)
	if err != nil {
		return err
	}
	defer f.Close()
	if m.Soft { // the software machine exists in one process
		err = fill(out, m, d.Info().PCI, f, size)
	} else {
		err = runChild(out, d.Info().PCI, f, size)
	}
	if err != nil {
		return err
	}
	return verify(out, d, a, size)
}

// runChild runs the child and waits for it.
func runChild(out io.Writer, pci string, f *os.File, size uint64) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-child", pci, "-bytes", fmt.Sprint(size))
	cmd.ExtraFiles = []*os.File{f}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}

// fill is the child. With a nil machine it uses the device nodes of this computer.
func fill(out io.Writer, m *machine.Machine, pci string, f *os.File, size uint64) (err error) {
	b, err := gdrcopy.Import(m, pci, f, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Unpin()) }()
	start := time.Now()
	const step = 1 << 20
	buf := make([]byte, step)
	for off := uint64(0); off < size; off += step {
		part := buf[:min(step, size-off)]
		pattern(part, off)
		if err := b.CopyTo(off, part); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "process %d, driver library loaded: %v, has written %d bytes in %v\n",
		os.Getpid(), hasCUDA(), size, time.Since(start).Round(time.Microsecond))
	return nil
}

// hasCUDA looks for the driver's library in this process.
func hasCUDA() bool {
	maps, err := os.ReadFile("/proc/self/maps")
	return err == nil && strings.Contains(string(maps), "libcuda")
}

// verify checks the memory through the GPU's driver.
func verify(out io.Writer, d gpu.Device, a gpu.Addr, size uint64) error {
	const step = 4 << 20
	got, want := make([]byte, step), make([]byte, step)
	for off := uint64(0); off < size; off += step {
		n := min(step, size-off)
		if err := d.CopyOut(got[:n], a+gpu.Addr(off)); err != nil {
			return err
		}
		pattern(want[:n], off)
		if !bytes.Equal(got[:n], want[:n]) {
			return fmt.Errorf("wrong bytes in %d bytes at offset %d", n, off)
		}
	}
	fmt.Fprintf(out, "%d bytes on the GPU: all as the child wrote them\n", size)
	return nil
}

// pattern fills b with the bytes for an offset.
func pattern(b []byte, off uint64) {
	for i := range b {
		b[i] = byte((off + uint64(i)) * 0x9E3779B97F4A7C15 >> 56)
	}
}
