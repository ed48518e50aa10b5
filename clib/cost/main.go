// Command cost measures a 4 KiB read into registered GPU memory with the Go API, as
// testdata/cost.c measures cuFileRead: nanoseconds per call in the best of several
// rounds. The difference is the cost of the C library.
//
//	cost FILE
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
)

const (
	size   = 4096
	rounds = 20
	calls  = 2000
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "cost: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: cost FILE")
	}
	m, err := machine.Open()
	if err != nil {
		return err
	}
	dev, err := m.GPU.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	drv, err := cufile.Open(m)
	if err != nil {
		return err
	}
	defer drv.Close()
	file, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := drv.Register(file)
	if err != nil {
		return err
	}
	a, err := dev.Alloc(gpu.KindDevice, size, 0)
	if err != nil {
		return err
	}
	buf, err := drv.RegisterBuffer(a, size)
	if err != nil {
		return err
	}
	best, err := measure(f, buf.Span())
	if err != nil {
		return err
	}
	fmt.Printf("read %d ns\n", best.Nanoseconds())
	return nil
}

// measure is the time of one read in the best round.
func measure(f *cufile.File, to gpu.Span) (time.Duration, error) {
	best := time.Hour
	for range rounds {
		start := time.Now()
		for range calls {
			r, err := f.ReadAt(context.Background(), to, 0)
			if err != nil {
				return 0, err
			}
			if r.Bytes != size {
				return 0, fmt.Errorf("read %d bytes of %d", r.Bytes, size)
			}
		}
		best = min(best, time.Since(start)/calls)
	}
	return best, nil
}
