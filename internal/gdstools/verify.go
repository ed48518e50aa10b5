package gdstools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/route"
)

// A Verification is what gdsio_verify's options ask for.
type Verification struct {
	Path     string
	GPU      int
	Offset   int64 // of the first read
	Size     int64 // bytes of each read
	Reads    int64 // 0 means to the end of the file
	Register bool  // the buffer
}

// Run reads a file into GPU memory, compares it with what pread returns, and prints
// gdsio_verify's lines and one with the route.
func (v *Verification) Run(ctx context.Context, drv *cufile.Driver, soft bool, out io.Writer) (err error) {
	f, err := os.Open(v.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := drv.Register(f)
	if err != nil {
		return err
	}
	defer file.Close()
	g, err := drv.Device(v.GPU)
	if err != nil {
		return err
	}
	addr, err := g.Alloc(gpu.KindDevice, uint64(v.Size), 0)
	if err != nil {
		return err
	}
	defer g.Free(addr)
	if v.Register {
		b, err := drv.RegisterBuffer(addr, uint64(v.Size))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
	}
	sum, ios, err := v.compare(ctx, f, file, g, addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "gpu index :%d,file :%s,gpu buffer alignment :0,gpu buffer offset :0,file offset :%d,io_requested :%d,bufregister :%t,sync :1,nr ios :%d\n",
		v.GPU, v.Path, v.Offset, v.Size, v.Register, ios)
	fmt.Fprintln(out, "Data Verification Success")
	_, err = fmt.Fprintln(out, routeLine([]*bench.Result{{Part: bench.Part{Receipt: sum}}}, soft))
	return err
}

// compare returns the sum of the receipts, and how many reads there were.
func (v *Verification) compare(ctx context.Context, f *os.File, file *cufile.File, g gpu.Device, addr gpu.Addr) (*route.Receipt, int64, error) {
	got, want := make([]byte, v.Size), make([]byte, v.Size)
	sum, ios := new(route.Receipt), int64(0)
	for off := v.Offset; v.Reads == 0 || ios < v.Reads; ios++ {
		n, err := io.ReadFull(io.NewSectionReader(f, off, v.Size), want)
		if n == 0 {
			break
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return nil, 0, err
		}
		r, err := file.ReadAt(ctx, gpu.Span{Dev: v.GPU, Base: addr, Len: uint64(n)}, off)
		if err != nil {
			return nil, 0, err
		}
		if err := g.CopyOut(got[:n], addr); err != nil {
			return nil, 0, err
		}
		if r.Bytes != int64(n) || !bytes.Equal(got[:n], want[:n]) {
			return nil, 0, fmt.Errorf("%s: GPU memory differs from the file in the %d bytes at %d (route %s)", v.Path, n, off, r.Route)
		}
		sum.Add(&r)
		off += int64(n)
	}
	if ios == 0 {
		return nil, 0, fmt.Errorf("%s: the file has no bytes at offset %d, so nothing was compared", v.Path, v.Offset)
	}
	return sum, ios, nil
}
