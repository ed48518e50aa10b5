// Strrev reverses the text of a file on the GPU. The file is read into GPU memory, a
// kernel reverses it there and counts it, and it is written back; a second run
// restores it.
//
//	go run ./examples/strrev FILE
//
// Like the C program whose calls it makes, it reads 4 KiB of a short file into fresh
// memory and takes the rest for zeros: fresh memory of a GPU is zero. With
// CULVERT_SOFT=poison=1 it is not, and the text does not end where the file ends.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
	"github.com/culvert-io/culvert/machine"
)

const (
	textRoom   = 4 << 10
	lengthRoom = 1 << 10
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Print("usage: strrev FILE")
		os.Exit(2)
	}
	m, err := machine.Open()
	if err == nil {
		err = errors.Join(run(context.Background(), os.Stdout, m, os.Args[1]), m.Close())
	}
	if err != nil {
		log.Fatal("strrev: ", err)
	}
}

func run(ctx context.Context, w io.Writer, m *machine.Machine, path string) (err error) {
	dev, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close() // also frees the memory
	text, err := dev.Alloc(gpu.KindDevice, textRoom, 0)
	if err != nil {
		return err
	}
	length, err := dev.Alloc(gpu.KindDevice, lengthRoom, 0)
	if err != nil {
		return err
	}

	drv, err := cufile.Open(m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drv.Close()) }()
	f, err := openDirect(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := drv.Register(f)
	if err != nil {
		return err
	}
	defer file.Close()
	buf, err := drv.RegisterBuffer(text, textRoom)
	if err != nil {
		return err
	}
	defer buf.Close()

	if _, err := file.ReadAt(ctx, buf.Span(), 0); err != nil {
		return err
	}
	n, err := reverse(dev, text, length)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "sys_len : %d\n", n)
	if _, err := file.WriteAt(ctx, buf.Span().Slice(0, n), 0); err != nil {
		return err
	}
	return show(w, dev, text, path)
}

// reverse has the GPU reverse the text, and returns the length that it counted.
func reverse(dev gpu.Device, text, length gpu.Addr) (uint64, error) {
	if err := kernels.Call(dev, "strrev", gpu.Dim{}, gpu.Dim{}, text, length); err != nil {
		return 0, err
	}
	b := make([]byte, lengthRoom)
	if err := dev.CopyOut(b, length); err != nil {
		return 0, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > textRoom {
		return 0, fmt.Errorf("the text has no end within %d bytes (fix: a shorter file)", textRoom)
	}
	return uint64(n), nil
}

func show(w io.Writer, dev gpu.Device, text gpu.Addr, path string) error {
	b := make([]byte, textRoom)
	if err := dev.CopyOut(b, text); err != nil {
		return err
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	_, err := fmt.Fprintf(w, "%s\nSee also %s\n", b, path)
	return err
}

// openDirect opens a file with O_DIRECT, or without on a file system that refuses it.
func openDirect(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	return f, err
}
