package softcuda

import (
	"structs"

	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/gpu"
)

// As in copy.go, a method of this file is two C functions, with a stream and without.

// A corner of CUDA_MEMCPY2D is where a rectangle begins.
type corner struct {
	_ structs.HostLayout

	X, Y   uint64
	Memory int32
	_      [4]byte
	Host   gpu.Addr
	Device gpu.Addr
	Array  uint64
	Pitch  uint64
}

// memcpy2D is CUDA_MEMCPY2D.
type memcpy2D struct {
	_ structs.HostLayout

	Src, Dst      corner
	Width, Height uint64
}

// CUmemorytype.
const (
	memoryHost    = 1
	memoryDevice  = 2
	memoryArray   = 3
	memoryUnified = 4
)

// start is the address of the first row, and whether it is given as the GPU's.
func (k *corner) start(width uint64) (a gpu.Addr, device bool, err error) {
	switch k.Memory {
	case memoryHost:
		a = k.Host
	case memoryDevice, memoryUnified:
		a = k.Device
	case memoryArray:
		return 0, false, gpu.ErrNotSupported
	default:
		return 0, false, gpu.ErrInvalidValue
	}
	if k.Pitch < k.X || k.Pitch-k.X < width {
		return 0, false, gpu.ErrInvalidValue
	}
	return a + gpu.Addr(k.Y*k.Pitch+k.X), k.Memory == memoryDevice, nil
}

// Memcpy2D is cuMemcpy2D.
func (d *Driver) Memcpy2D(c Call, what cmem.Ptr) error {
	m := cmem.Load[memcpy2D](what)
	dst, toDevice, err := m.Dst.start(m.Width)
	if err != nil {
		return err
	}
	src, fromDevice, err := m.Src.start(m.Width)
	if err != nil {
		return err
	}
	return rows(m.Width, m.Height, func(i uint64) error {
		to, from := dst+gpu.Addr(i*m.Dst.Pitch), src+gpu.Addr(i*m.Src.Pitch)
		var device []gpu.Addr
		if toDevice {
			device = append(device, to)
		}
		if fromDevice {
			device = append(device, from)
		}
		return d.Copy(c, to, from, m.Width, device...)
	})
}

// rows calls row for each row until one fails. Empty rows are alike: one is enough,
// whatever height the program gave.
func rows(width, height uint64, row func(i uint64) error) error {
	if width == 0 {
		height = min(height, 1)
	}
	for i := range height {
		if err := row(i); err != nil {
			return err
		}
	}
	return nil
}

// Fill2D fills a rectangle with values, of which a row has so many.
func (d *Driver) Fill2D(c Call, dst gpu.Addr, pitch uint64, value uint32, size int, width, height uint64) error {
	if height > 1 && pitch/uint64(size) < width {
		return gpu.ErrInvalidValue
	}
	return rows(width, height, func(i uint64) error {
		return d.Fill(c, dst+gpu.Addr(i*pitch), value, size, width)
	})
}

// MemsetD2D8 is cuMemsetD2D8.
func (d *Driver) MemsetD2D8(c Call, dst gpu.Addr, pitch uint64, v uint8, width, height uint64) error {
	return d.Fill2D(c, dst, pitch, uint32(v), 1, width, height)
}

// MemsetD2D16 is cuMemsetD2D16.
func (d *Driver) MemsetD2D16(c Call, dst gpu.Addr, pitch uint64, v uint16, width, height uint64) error {
	return d.Fill2D(c, dst, pitch, uint32(v), 2, width, height)
}

// MemsetD2D32 is cuMemsetD2D32.
func (d *Driver) MemsetD2D32(c Call, dst gpu.Addr, pitch uint64, v uint32, width, height uint64) error {
	return d.Fill2D(c, dst, pitch, v, 4, width, height)
}
