// Rw writes GPU memory to a file and reads it into other GPU memory. It makes the
// calls of the smallest cuFile program in C, in its order, releases in reverse order,
// and prints only errors.
//
//	go run ./examples/rw FILE
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
)

const size = 4 << 20

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Print("usage: rw FILE (which is overwritten with 4 MiB)")
		os.Exit(2)
	}
	m, err := machine.Open()
	if err == nil {
		err = errors.Join(run(context.Background(), m, os.Args[1]), m.Close())
	}
	if err != nil {
		log.Fatal("rw: ", err)
	}
}

func run(ctx context.Context, m *machine.Machine, path string) (err error) {
	drv, err := cufile.Open(m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drv.Close()) }()
	dev, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close() // also frees the memory
	from, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	to, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}

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
	source, err := drv.RegisterBuffer(from, size)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := drv.RegisterBuffer(to, size)
	if err != nil {
		return err
	}
	defer target.Close()

	if err := whole(file.WriteAt(ctx, source.Span(), 0)); err != nil {
		return err
	}
	return whole(file.ReadAt(ctx, target.Span(), 0))
}

// openDirect opens a file with O_DIRECT, or without on a file system that refuses it.
func openDirect(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o664)
	if errors.Is(err, unix.EINVAL) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o664)
	}
	return f, err
}

// whole makes a transfer that ended early an error.
func whole(r route.Receipt, err error) error {
	if err == nil && r.Bytes != size {
		err = fmt.Errorf("%v: %d bytes of %d", r.Dir, r.Bytes, size)
	}
	return err
}
