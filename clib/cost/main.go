// Command cost measures a 4 KiB read into registered GPU memory with the Go API, as
// testdata/cost.c measures cuFileRead: nanoseconds per call in the best of several
// rounds. The difference is the cost of the C library.
//
//	cost FILE
package main

import (
	"context"
	"fmt"
	"log"
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
	log.SetFlags(0)
	log.SetPrefix("cost: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: cost FILE")
	}
	m := must(machine.Open())
	dev := must(m.GPU.Open(0))
	drv := must(cufile.Open(m))
	f := must(drv.Register(must(os.OpenFile(os.Args[1], os.O_RDWR, 0))))
	buf := must(drv.RegisterBuffer(must(dev.Alloc(gpu.KindDevice, size, 0)), size))
	best := time.Hour
	for range rounds {
		start := time.Now()
		for range calls {
			if r, err := f.ReadAt(context.Background(), buf.Span(), 0); err != nil || r.Bytes != size {
				log.Fatalf("read %d bytes of %d: %v", r.Bytes, size, err)
			}
		}
		best = min(best, time.Since(start)/calls)
	}
	fmt.Printf("read %d ns\n", best.Nanoseconds())
}

// must ends the program on an error. The operating system releases everything.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
