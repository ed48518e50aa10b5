package softrt

import (
	"github.com/culvert-io/culvert/clib/internal/cmem"
	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/softcuda"
	"github.com/culvert-io/culvert/gpu"
)

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
func (r *Runtime) Memcpy(t *softcuda.Thread, dst, src cmem.Ptr, n uint64, kind int32) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	sides, err := deviceSides(gpu.Addr(dst), gpu.Addr(src), kind)
	if err != nil {
		return err
	}
	return r.cuda.Copy(t, gpu.Addr(dst), gpu.Addr(src), n, sides...)
}

// MemcpyAsync is cudaMemcpyAsync.
func (r *Runtime) MemcpyAsync(t *softcuda.Thread, dst, src cmem.Ptr, n uint64, kind int32, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	sides, err := deviceSides(gpu.Addr(dst), gpu.Addr(src), kind)
	if err != nil {
		return err
	}
	return r.cuda.CopyAsync(t, gpu.Addr(dst), gpu.Addr(src), n, id, sides...)
}

// MemcpyPeer is cudaMemcpyPeer.
func (r *Runtime) MemcpyPeer(t *softcuda.Thread, dst cmem.Ptr, _ int32, src cmem.Ptr, _ int32, n uint64) error {
	return r.Memcpy(t, dst, src, n, deviceToDevice)
}

// MemcpyPeerAsync is cudaMemcpyPeerAsync.
func (r *Runtime) MemcpyPeerAsync(t *softcuda.Thread, dst cmem.Ptr, _ int32, src cmem.Ptr, _ int32, n uint64, id handle.ID) error {
	return r.MemcpyAsync(t, dst, src, n, deviceToDevice, id)
}

// Memcpy2D is cudaMemcpy2D.
func (r *Runtime) Memcpy2D(t *softcuda.Thread, dst cmem.Ptr, dpitch uint64, src cmem.Ptr, spitch, width, height uint64, kind int32) error {
	return rows(dst, dpitch, src, spitch, width, height, func(d, s cmem.Ptr) error {
		return r.Memcpy(t, d, s, width, kind)
	})
}

// Memcpy2DAsync is cudaMemcpy2DAsync.
func (r *Runtime) Memcpy2DAsync(t *softcuda.Thread, dst cmem.Ptr, dpitch uint64, src cmem.Ptr, spitch, width, height uint64, kind int32, id handle.ID) error {
	return rows(dst, dpitch, src, spitch, width, height, func(d, s cmem.Ptr) error {
		return r.MemcpyAsync(t, d, s, width, kind, id)
	})
}

func rows(dst cmem.Ptr, dpitch uint64, src cmem.Ptr, spitch, width, height uint64, row func(dst, src cmem.Ptr) error) error {
	if width > dpitch || width > spitch {
		return errInvalidPitch
	}
	for i := range height {
		if err := row(dst+cmem.Ptr(i*dpitch), src+cmem.Ptr(i*spitch)); err != nil {
			return err
		}
	}
	return nil
}

// Memset is cudaMemset: the low byte of the value.
func (r *Runtime) Memset(t *softcuda.Thread, p cmem.Ptr, v int32, n uint64) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.Fill(t, gpu.Addr(p), uint32(uint8(v)), 1, n)
}

// MemsetAsync is cudaMemsetAsync.
func (r *Runtime) MemsetAsync(t *softcuda.Thread, p cmem.Ptr, v int32, n uint64, id handle.ID) error {
	if err := r.ensure(t); err != nil {
		return err
	}
	return r.cuda.FillAsync(t, gpu.Addr(p), uint32(uint8(v)), 1, n, id)
}
