// Package crc32c computes CRC-32C of chunks, in any order and concurrently, and
// combines them.
package crc32c

import (
	"context"
	"hash/crc32"
	"io"
	"math"
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Sum is the CRC-32C of p.
func Sum(p []byte) uint32 { return crc32.Checksum(p, table) }

// Update returns the checksum of bytes with this sum and of p behind them.
func Update(sum uint32, p []byte) uint32 { return crc32.Update(sum, table, p) }

// File is the CRC-32C and the size of all that r has, by plain reads.
func File(ctx context.Context, r io.ReaderAt) (sum uint32, size int64, err error) {
	h := crc32.New(table)
	size, err = io.CopyBuffer(h, ctxReader{ctx, io.NewSectionReader(r, 0, math.MaxInt64)}, make([]byte, 1<<20))
	return h.Sum32(), size, err
}

// A ctxReader stops reading when the context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Join is the CRC-32C of two consecutive chunks, of which the second has n bytes.
//
// A CRC is the remainder of the data as a polynomial over GF(2). Appending n bytes
// multiplies it by x^8n; the inversions at both ends of the second chunk cancel those
// of the first.
func Join(first, second uint32, n int64) uint32 { return multiply(power(n), first) ^ second }

// squares[k] is x^(8 * 2^k) modulo the polynomial.
var squares = func() (s [63]uint32) {
	s[0] = 1 << (31 - 8)
	for k := 1; k < len(s); k++ {
		s[k] = multiply(s[k-1], s[k-1])
	}
	return s
}()

// power is x^8n modulo the polynomial.
func power(n int64) uint32 {
	p := uint32(1 << 31)
	for k := 0; n != 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			p = multiply(squares[k], p)
		}
	}
	return p
}

// multiply is the product modulo the polynomial, lowest power in the highest bit.
func multiply(a, b uint32) uint32 {
	var p uint32
	for ; a != 0; a <<= 1 {
		if a>>31 != 0 {
			p ^= b
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}
