package tensor

import (
	"context"
	"io"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// An Engine is what a load needs of a machine.
type Engine interface {
	Open(path string) (Reader, error)
	// Device is the engine's own hold on a GPU; a load does not close it.
	Device(i int) (gpu.Device, error)
	// Register prepares an allocation for many reads, until it is closed.
	Register(span gpu.Span) (io.Closer, error)
}

// A Reader is an open file whose bytes can be read into GPU memory. It is safe
// for concurrent use.
type Reader interface {
	// Read fills all pieces and returns one receipt for them. Fewer bytes
	// without an error mean that the file ended.
	Read(ctx context.Context, pieces []Piece) (route.Receipt, error)
	Close() error
}

// A Piece is a range of a file, and the memory that it goes to.
type Piece struct {
	Off int64
	Dst gpu.Span
}

// Cufile is the engine that loads through a cuFile session, by whatever routes
// the machine has.
func Cufile(d *cufile.Driver) Engine { return cufileEngine{d} }

type cufileEngine struct{ drv *cufile.Driver }

func (e cufileEngine) Device(i int) (gpu.Device, error) { return e.drv.Device(i) }

func (e cufileEngine) Register(s gpu.Span) (io.Closer, error) {
	return e.drv.RegisterBuffer(s.Addr(), s.Len)
}

func (e cufileEngine) Open(path string) (Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// The registered file has a descriptor of its own.
	defer f.Close()
	h, err := e.drv.Register(f)
	if err != nil {
		return nil, err
	}
	return &cufileReader{e.drv, h}, nil
}

type cufileReader struct {
	drv  *cufile.Driver
	file *cufile.File
}

func (r *cufileReader) Close() error { return r.file.Close() }

// Direct reports whether a drive itself would fill registered memory of a GPU with
// bytes of the file.
func (r *cufileReader) Direct(device int) bool {
	p, err := r.file.Plan(device)
	return err == nil && (p.Best() == route.NVFS || p.Best() == route.P2PDMA)
}

func (r *cufileReader) Read(ctx context.Context, pieces []Piece) (route.Receipt, error) {
	if len(pieces) == 1 {
		return r.file.ReadAt(ctx, pieces[0].Dst, pieces[0].Off)
	}
	reqs := make([]cufile.Request, len(pieces))
	res := make([]route.Receipt, len(pieces))
	for i, p := range pieces {
		reqs[i] = cufile.Request{Dir: route.Read, File: r.file, Mem: p.Dst, Off: p.Off}
	}
	err := r.drv.Do(ctx, reqs, res)
	var sum route.Receipt
	for i := range res {
		if i > 0 {
			res[i].Time = 0 // they travelled together
		}
		sum.Add(&res[i])
	}
	return sum, err
}
