package cuda

import (
	"math"
	"runtime"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dl"
)

// settled calls s and waits until it has taken effect. CUDA lets copies from
// pageable memory, copies within a device and fills of device memory return
// early; they run on the default stream, so waiting for that stream is enough,
// and when the call was complete already it costs no more than asking. The other
// remedy, SYNC_MEMOPS on every allocation, would also change how memory behaves
// in other libraries' hands.
func (d *Device) settled(s *symbol, args ...uintptr) (*symbol, gpu.Code) {
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
	s, c := d.settled(&d.symbols.cuMemcpyHtoD, uintptr(dst), refBytes(src), uintptr(len(src)))
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
	if s, c := d.settled(&d.symbols.cuMemcpy, uintptr(dst), uintptr(src), uintptr(n)); c != gpu.Success {
		return d.fail(s, c, "", dst, src, n)
	}
	return nil
}

// Fill writes n elements of 1, 2 or 4 bytes.
func (d *Device) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	s, ok := d.memset(width)
	if why := refusesFill(ok, width, n); why != "" {
		return d.fail(s, gpu.ErrInvalidValue, why, dst, value, n)
	}
	if s, c := d.settled(s, uintptr(dst), uintptr(value), uintptr(n)); c != gpu.Success {
		return d.fail(s, c, "", dst, value, n)
	}
	return nil
}

// refusesFill says what is wrong with a fill that must not reach the driver. Of
// a size that overflows an H200's fills what is left of it, and says success.
func refusesFill(known bool, width int, n uint64) string {
	switch {
	case !known:
		return "elements have 1, 2 or 4 bytes"
	case n > math.MaxUint64/uint64(width):
		return "the size overflows"
	}
	return ""
}

func (d *Device) memset(width int) (s *symbol, ok bool) {
	switch width {
	case 1:
		return &d.symbols.cuMemsetD8, true
	case 2:
		return &d.symbols.cuMemsetD16, true
	case 4:
		return &d.symbols.cuMemsetD32, true
	}
	return &d.symbols.cuMemsetD8, false
}
