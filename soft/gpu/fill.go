package gpu

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/culvert-io/culvert/gpu"
)

var fillCalls = map[int]string{1: "cuMemsetD8", 2: "cuMemsetD16", 4: "cuMemsetD32"}

// acquireFill checks the arguments of a fill and acquires its memory, unless size is 0.
func (c *context) acquireFill(dst gpu.Addr, width int, n uint64) (p place, size uint64, err error) {
	if fillCalls[width] == "" {
		return p, 0, refuse(gpu.ErrInvalidValue, "elements of %d bytes", width)
	}
	if uint64(dst)%uint64(width) != 0 {
		return p, 0, refuse(gpu.ErrInvalidValue, "the address is not a multiple of %d", width)
	}
	over, size := bits.Mul64(n, uint64(width))
	if over != 0 {
		return p, 0, refuse(gpu.ErrInvalidValue, "the size overflows")
	}
	if size > 0 {
		p, err = c.drv.acquire(dst, size, c.anyHost())
	}
	return p, size, err
}

func failFill(err error, dst gpu.Addr, value uint32, width int, n uint64) error {
	call := cmp.Or(fillCalls[width], "cuMemset")
	return fail(fmt.Sprintf("%s(%v, %#x, %d)", call, dst, value, n), err)
}

// Fill writes n elements.
func (x *Device) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	if err := x.check("cuMemset"); err != nil {
		return err
	}
	x.ctx.waitBlocking()
	p, size, err := x.ctx.acquireFill(dst, width, n)
	if err == nil && size > 0 {
		err = guard(p.blk.foreign, func() { fill(p, value, width, size) })
		x.ctx.drv.release(p)
	}
	if err != nil {
		return failFill(err, dst, value, width, n)
	}
	return nil
}

// Fill enqueues a fill.
func (s *Stream) Fill(dst gpu.Addr, value uint32, width int, n uint64) error {
	const call = "cuMemsetAsync"
	if err := s.check(call); err != nil {
		return err
	}
	p, size, err := s.ctx.acquireFill(dst, width, n)
	switch {
	case err != nil:
		return failFill(err, dst, value, width, n)
	case size == 0:
		return nil
	}
	return s.push(call, task{kind: taskFill, dst: p, value: uint64(value), width: width, n: size})
}

// fill repeats the element over n bytes.
func fill(p place, value uint32, width int, n uint64) {
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], value)
	for c := p.cursor(); n > 0; {
		part := c.now[:min(uint64(len(c.now)), n, step)]
		// The filled part is its own source, twice as long each time. All parts begin at a
		// multiple of the width.
		for done := copy(part, word[:width]); done < len(part); done *= 2 {
			copy(part[done:], part[:done])
		}
		c.skip(len(part))
		n -= uint64(len(part))
	}
}
