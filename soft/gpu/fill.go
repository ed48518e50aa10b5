package gpu

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"runtime/debug"

	"github.com/culvert-io/culvert/gpu"
)

var fillCalls = map[int]string{1: "cuMemsetD8", 2: "cuMemsetD16", 4: "cuMemsetD32"}

// fillSize checks the arguments of a fill and returns its size in bytes.
func fillSize(dst gpu.Addr, width int, n uint64) (size uint64, c gpu.Code, detail string) {
	if fillCalls[width] == "" {
		return 0, gpu.ErrInvalidValue, fmt.Sprintf("elements of %d bytes", width)
	}
	if uint64(dst)%uint64(width) != 0 {
		return 0, gpu.ErrInvalidValue, fmt.Sprintf("the address is not a multiple of %d", width)
	}
	over, size := bits.Mul64(n, uint64(width))
	if over != 0 {
		return 0, gpu.ErrInvalidValue, "the size overflows"
	}
	return size, gpu.Success, ""
}

func fillOp(dst gpu.Addr, value uint32, width int, n uint64) string {
	call := fillCalls[width]
	if call == "" {
		call = "cuMemset"
	}
	return fmt.Sprintf("%s(%v, %#x, %d)", call, dst, value, n)
}

// Fill writes n elements.
func (x *Device) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	if err := x.check("cuMemset"); err != nil {
		return err
	}
	size, c, detail := fillSize(dst, width, n)
	if c == gpu.Success && size > 0 {
		x.ctx.settle()
		var p place
		if p, c, detail = x.ctx.drv.acquire(dst, size, x.ctx.anyHost()); c == gpu.Success {
			c, detail = fill(p, value, width, size)
			x.ctx.drv.yield(p, place{})
		}
	}
	if c != gpu.Success {
		return gpu.Fail(fillOp(dst, value, width, n), c, detail)
	}
	return nil
}

// fill repeats the element over n bytes.
func fill(p place, value uint32, width int, n uint64) (c gpu.Code, detail string) {
	if p.blk.foreign {
		defer func() {
			if why := fault(recover()); why != "" {
				c, detail = gpu.ErrInvalidValue, why
			}
		}()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	}
	fillBytes(p, value, width, n)
	return gpu.Success, ""
}

func fillBytes(p place, value uint32, width int, n uint64) {
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], value)
	for c := p.cursor(); n > 0; {
		part := c.now[:min(uint64(len(c.now)), n, step)]
		// The filled part is its own source, twice as long each time. All
		// pieces begin at a multiple of the width.
		for done := copy(part, word[:width]); done < len(part); done *= 2 {
			copy(part[done:], part[:done])
		}
		c.skip(len(part))
		n -= uint64(len(part))
	}
}
