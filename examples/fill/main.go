// Fill shows a process without driver library that fills GPU memory. The parent
// allocates memory and exports it as a descriptor. The child receives the descriptor
// over a socket, maps the memory through BAR1 and writes it. The parent checks the
// result on the GPU.
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

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

func main() {
	log.SetFlags(0)
	size := flag.Uint64("bytes", 64<<20, "how much memory to fill")
	child := flag.Bool("child", false, "be the child: the socket is descriptor 3")
	flag.Parse()
	var err error
	if *child {
		err = fill(os.NewFile(3, "socket"), nil)
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
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	wait, err := start(m, theirs)
	if err != nil {
		return errors.Join(err, ours.Close())
	}
	defer func() {
		ours.Close() // ends the child in any case
		err = errors.Join(err, wait())
	}()
	if err := send(ours, order{d.Info().PCI, size}, f); err != nil {
		return err
	}
	reply, err := io.ReadAll(ours)
	if err != nil {
		return err
	}
	if len(reply) == 0 {
		return errors.New("no reply from the child")
	}
	fmt.Fprintf(out, "%s\n", reply)
	return verify(out, d, a, size)
}

// start starts the child and returns a function that waits for its end. The software
// machine exists in one process, so there the child is a goroutine.
func start(m *machine.Machine, socket *os.File) (wait func() error, err error) {
	if m.Soft {
		done := make(chan error, 1)
		go func() { done <- fill(socket, m) }()
		return func() error { return <-done }, nil
	}
	defer socket.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-child")
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Wait, nil
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
