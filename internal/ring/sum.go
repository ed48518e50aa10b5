package ring

import (
	"hash/crc32"
	"slices"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A stretch is a part of a request whose CRC-32C is known.
type stretch struct {
	from, to int64
	crc      uint32
}

// sums are the stretches of a request, in order, with neighbours joined. Pieces
// are taken in order and only so many are under way, so that the list stays
// short however long the request is.
type sums []stretch

func (s *sums) add(n stretch) {
	if n.from == n.to {
		return
	}
	i, _ := slices.BinarySearchFunc(*s, n.from, func(e stretch, from int64) int { return int(e.from - from) })
	if i < len(*s) && (*s)[i].from == n.to {
		next := &(*s)[i]
		next.crc, next.from = combine(n.crc, next.crc, next.to-next.from), n.from
		if i > 0 && (*s)[i-1].to == n.from {
			prev := &(*s)[i-1]
			prev.crc, prev.to = combine(prev.crc, next.crc, next.to-next.from), next.to
			*s = slices.Delete(*s, i, i+1)
		}
		return
	}
	if i > 0 && (*s)[i-1].to == n.from {
		prev := &(*s)[i-1]
		prev.crc, prev.to = combine(prev.crc, n.crc, n.to-n.from), n.to
		return
	}
	*s = slices.Insert(*s, i, n)
}

// prefix is the sum of the first n bytes. They end where a piece ended.
func (s sums) prefix(n int64) uint32 {
	if n == 0 || len(s) == 0 || s[0].from != 0 || s[0].to != n {
		return 0
	}
	return s[0].crc
}

// combine is the CRC of two stretches in a row, the second n bytes long. The
// inversions at the start and the end of the second cancel those of the first.
func combine(first, second uint32, n int64) uint32 {
	return multiply(power(n), first) ^ second
}

// squares[k] is x^(8 * 2^k) modulo the polynomial.
var squares = func() (s [63]uint32) {
	s[0] = 1 << (31 - 8)
	for k := 1; k < len(s); k++ {
		s[k] = multiply(s[k-1], s[k-1])
	}
	return s
}()

// power is x^(8n): a shift by n bytes.
func power(n int64) uint32 {
	p := uint32(1 << 31)
	for k := 0; n != 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			p = multiply(squares[k], p)
		}
	}
	return p
}

// multiply is a product of polynomials modulo Castagnoli's, lowest power in the
// highest bit.
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
