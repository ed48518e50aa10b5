package tensor

import (
	"context"
	"io"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A Reader is an open file whose bytes can be read into GPU memory.
// [*cufile.File] is one. It is safe for concurrent use; a count below dst.Len
// without an error means that the file ended.
type Reader interface {
	ReadAt(ctx context.Context, dst gpu.Span, off int64) (route.Receipt, error)
	Close() error
}

// An Engine is what a load needs of a machine.
type Engine interface {
	Open(path string) (Reader, error)
	// Device is the engine's own hold on a GPU; a load does not close it.
	Device(i int) (gpu.Device, error)
	// Register prepares an allocation for many reads, until it is closed.
	Register(span gpu.Span) (io.Closer, error)
}

// Cufile is the engine that loads through a cuFile session, by whatever routes
// the machine has.
func Cufile(d *cufile.Driver) Engine { return cufileEngine{d} }

type cufileEngine struct{ drv *cufile.Driver }

func (e cufileEngine) Device(i int) (gpu.Device, error) { return e.drv.Device(i) }

func (e cufileEngine) Open(path string) (Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// The registered file has a descriptor of its own.
	defer f.Close()
	return e.drv.Register(f)
}

func (e cufileEngine) Register(s gpu.Span) (io.Closer, error) {
	return e.drv.RegisterBuffer(s.Addr(), s.Len)
}
