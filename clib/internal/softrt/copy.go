package softrt

import (
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

// As in softcuda, a method of this file is two C functions, with a stream and
// without.

// cudaMemcpyKind.
const (
	hostToHost = iota
	hostToDevice
	deviceToHost
	deviceToDevice
	inferred
)

// deviceSides are the addresses that a kind of copy claims to be the GPU's.
func deviceSides(dst, src gpu.Addr, kind int32) ([]gpu.Addr, error) {
	switch kind {
	case hostToHost, inferred:
		return nil, nil
	case hostToDevice:
		return []gpu.Addr{dst}, nil
	case deviceToHost:
		return []gpu.Addr{src}, nil
	case deviceToDevice:
		return []gpu.Addr{dst, src}, nil
	}
	return nil, errInvalidDirection
}

// Memcpy is cudaMemcpy.
func (r *Runtime) Memcpy(c softcuda.Call, dst, src gpu.Addr, n uint64, kind int32) error {
	sides, err := deviceSides(dst, src, kind)
	if err != nil {
		return err
	}
	return r.cuda.Copy(c, dst, src, n, sides...)
}

// MemcpyPeer is cudaMemcpyPeer.
func (r *Runtime) MemcpyPeer(c softcuda.Call, dst gpu.Addr, _ int32, src gpu.Addr, _ int32, n uint64) error {
	return r.Memcpy(c, dst, src, n, deviceToDevice)
}

// Memcpy2D is cudaMemcpy2D.
func (r *Runtime) Memcpy2D(c softcuda.Call, dst gpu.Addr, dpitch uint64, src gpu.Addr, spitch, width, height uint64, kind int32) error {
	if width > dpitch || width > spitch {
		return errInvalidPitch
	}
	for i := range height {
		if err := r.Memcpy(c, dst+gpu.Addr(i*dpitch), src+gpu.Addr(i*spitch), width, kind); err != nil {
			return err
		}
	}
	return nil
}

// Memset is cudaMemset: the low byte of the value.
func (r *Runtime) Memset(c softcuda.Call, a gpu.Addr, v int32, n uint64) error {
	return r.cuda.Fill(c, a, uint32(uint8(v)), 1, n)
}

// Memset2D is cudaMemset2D.
func (r *Runtime) Memset2D(c softcuda.Call, a gpu.Addr, pitch uint64, v int32, width, height uint64) error {
	return r.cuda.Fill2D(c, a, pitch, uint32(uint8(v)), 1, width, height)
}
