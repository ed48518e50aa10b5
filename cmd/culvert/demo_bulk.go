package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/gpu/kernels"
)

// bulkSize is that of the larger file: whole blocks.
const bulkSize = 1 << 20

// bulk copies a larger file through GPU memory: whole blocks take the best route
// that there is.
func (d *demo) bulk() (err error) {
	data := make([]byte, bulkSize)
	for i := range data {
		data[i] = byte(i ^ i>>8)
	}
	dir := filepath.Dir(d.path)
	from, to := filepath.Join(dir, "large.bin"), filepath.Join(dir, "copy.bin")
	if err := errors.Join(os.WriteFile(from, data, 0o644), os.WriteFile(to, nil, 0o644)); err != nil {
		return err
	}
	base, err := d.dev.Alloc(gpu.KindDevice, bulkSize, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.dev.Free(base)) }()
	buf, err := d.drv.RegisterBuffer(base, bulkSize)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	fmt.Fprintln(d.out)
	if err := d.bulkIn(from, buf.Span(), data); err != nil {
		return err
	}
	if err := d.bulkOut(to, buf.Span()); err != nil {
		return err
	}
	got, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("copy.bin differs from large.bin")
	}
	fmt.Fprintln(d.out, "\ncopy.bin holds what large.bin holds\nverified")
	return nil
}

func (d *demo) bulkIn(path string, mem gpu.Span, data []byte) error {
	return d.with(path, func(f *cufile.File) error {
		r, err := f.ReadAt(d.ctx, mem, 0)
		if err != nil {
			return err
		}
		d.moved("large.bin", &r)
		mod, err := d.dev.Load(kernels.PTX)
		if err != nil {
			return err
		}
		defer mod.Close()
		return d.sum(mod, mem.Addr(), data)
	})
}

func (d *demo) bulkOut(path string, mem gpu.Span) error {
	return d.with(path, func(f *cufile.File) error {
		r, err := f.WriteAt(d.ctx, mem, 0)
		if err != nil {
			return err
		}
		d.moved("copy.bin", &r)
		return nil
	})
}

// with registers a file for a while.
func (d *demo) with(path string, use func(*cufile.File) error) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := d.drv.Register(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	return use(h)
}
