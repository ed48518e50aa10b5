package tensor

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Sum is a CRC-32C. JSON has it as eight hexadecimal digits.
type Sum uint32

func (s Sum) String() string { return fmt.Sprintf("%08x", uint32(s)) }

// MarshalText gives the digits.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the digits.
func (s *Sum) UnmarshalText(b []byte) error {
	if _, err := hex.DecodeString(string(b)); err != nil || len(b) != 8 {
		return fmt.Errorf("CRC-32C %q: want eight hexadecimal digits", b)
	}
	n, err := strconv.ParseUint(string(b), 16, 32)
	*s = Sum(n)
	return err
}

func sumOf(p []byte) Sum { return Sum(crc32.Checksum(p, castagnoli)) }

// join is the sum of two pieces that follow each other, of which the second has
// n bytes. So sums can be computed in any order, by as many as like to.
//
// A CRC is the remainder of the data as a polynomial over GF(2). To append n
// bytes is to multiply by x^8n, and the inversions at both ends cancel out.
func (s Sum) join(next Sum, n int64) Sum { return Sum(mulmod(power(n), uint32(s))) ^ next }

// Polynomials are kept the way CRC-32C keeps them: the highest bit is x^0.
const (
	castagnoliPoly = 0x82f63b78
	x0             = 1 << 31
	x8             = 1 << 23
)

// power is x^8n modulo the polynomial.
func power(n int64) uint32 {
	result, square := uint32(x0), uint32(x8)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			result = mulmod(result, square)
		}
		square = mulmod(square, square)
	}
	return result
}

func mulmod(a, b uint32) uint32 {
	var product uint32
	for bit := uint32(x0); bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= castagnoliPoly
		}
	}
	return product
}
