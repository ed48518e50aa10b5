package cuda

import (
	"math"
	"runtime"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// callAndWait calls s and waits for the default stream. CUDA lets copies from
// pageable memory, copies within a device and fills of device memory return
// early, but runs them on the default stream. Waiting for a stream without work
// costs no more than a query. The alternative, SYNC_MEMOPS on every allocation,
// would also change how other libraries see the memory.
func (d *Device) callAndWait(s *symbol, args ...uintptr) (*symbol, gpu.Code) {
	if d.closed.Load() {
		return s, gpu.ErrContextDestroyed
	}
	const defaultStream = 0
	wait := &d.symbols.cuStreamSynchronize
	c, at := dl.Chain(d.current(), step(s, args), dl.Step{Fn: wait.fn, Args: [maxStepArgs]uintptr{defaultStream}})
	if at == 2 {
		s = wait
	}
	return s, gpu.Code(c)
}

// CopyIn copies host memory to the GPU.
func (d *Device) CopyIn(dst gpu.Addr, src []byte) error {
	s, c := d.callAndWait(&d.symbols.cuMemcpyHtoD, uintptr(dst), refBytes(src), uintptr(len(src)))
	runtime.KeepAlive(src)
	if c != gpu.Success {
		return d.fail(s, c, "", dst, "host", len(src))
	}
	return nil
}

// CopyOut copies GPU memory to the host. The driver's call returns when the
// bytes have arrived.
func (d *Device) CopyOut(dst []byte, src gpu.Addr) error {
	s := &d.symbols.cuMemcpyDtoH
	c := d.call(s, refBytes(dst), uintptr(src), uintptr(len(dst)))
	runtime.KeepAlive(dst)
	if c != gpu.Success {
		return d.fail(s, c, "", "host", src, len(dst))
	}
	return nil
}

// Copy copies between any two addresses.
func (d *Device) Copy(dst, src gpu.Addr, n uint64) error {
	if s, c := d.callAndWait(&d.symbols.cuMemcpy, uintptr(dst), uintptr(src), uintptr(n)); c != gpu.Success {
		return d.fail(s, c, "", dst, src, n)
	}
	return nil
}

// Fill writes n elements of 1, 2 or 4 bytes.
func (d *Device) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	sym := d.symbols
	s, invalid := memset(width, n, &sym.cuMemsetD8, &sym.cuMemsetD16, &sym.cuMemsetD32)
	if invalid != "" {
		return d.fail(s, gpu.ErrInvalidValue, invalid, dst, value, n)
	}
	if s, c := d.callAndWait(s, uintptr(dst), uintptr(value), uintptr(n)); c != gpu.Success {
		return d.fail(s, c, "", dst, value, n)
	}
	return nil
}

// memset chooses the function for elements of width bytes, or says why the fill
// is invalid. An H200 fills less than was asked for if the size in bytes
// overflows, and reports success.
func memset(width int, n uint64, d8, d16, d32 *symbol) (s *symbol, invalid string) {
	switch width {
	case 1:
		s = d8
	case 2:
		s = d16
	case 4:
		s = d32
	default:
		return d8, "element width must be 1, 2 or 4 bytes"
	}
	if n > math.MaxUint64/uint64(width) {
		return s, "size overflows"
	}
	return s, ""
}
