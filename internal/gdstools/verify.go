package gdstools

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// Verify reads a file into GPU memory, as gdsio_verify does, and compares it with
// what pread returns.
func Verify(ctx context.Context, drv *cufile.Driver, dev int, path string, chunk int64, out io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := drv.Register(f)
	if err != nil {
		return err
	}
	defer file.Close()
	g, err := drv.Device(dev)
	if err != nil {
		return err
	}
	addr, err := g.Alloc(gpu.KindDevice, uint64(chunk), 0)
	if err != nil {
		return err
	}
	defer g.Free(addr)
	got, want := make([]byte, chunk), make([]byte, chunk)
	for off := int64(0); ; {
		n, err := io.ReadFull(io.NewSectionReader(f, off, chunk), want)
		if n == 0 {
			break
		}
		if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		r, err := file.ReadAt(ctx, gpu.Span{Dev: dev, Base: addr, Len: uint64(n)}, off)
		if err != nil {
			return err
		}
		if err := g.CopyOut(got[:n], addr); err != nil {
			return err
		}
		if r.Bytes != int64(n) || !bytes.Equal(got[:n], want[:n]) {
			return fmt.Errorf("%s: GPU memory differs from the file in the %d bytes at %d (route %s)", path, n, off, r.Route)
		}
		off += int64(n)
	}
	fmt.Fprintf(out, "gpu index :%d,file :%s,gpu buffer offset :0,file offset :0,io_requested :%d\n", dev, path, chunk)
	_, err = fmt.Fprintln(out, "Data Verification Success")
	return err
}
