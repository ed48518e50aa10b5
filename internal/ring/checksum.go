package ring

import (
	"slices"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// A stretch is a part of a request whose CRC-32C is known.
type summedRange struct {
	from, to int64
	crc      uint32
}

// sums are the stretches of a request, in order, with neighbours joined. Pieces
// are taken in order and only so many are under way, so that the list stays
// short however long the request is.
type checksums []summedRange

func (s *checksums) add(n summedRange) {
	if n.from == n.to {
		return
	}
	i, _ := slices.BinarySearchFunc(*s, n.from, func(e summedRange, from int64) int { return int(e.from - from) })
	if i < len(*s) && (*s)[i].from == n.to {
		next := &(*s)[i]
		next.crc, next.from = crc32c.Join(n.crc, next.crc, next.to-next.from), n.from
		if i > 0 && (*s)[i-1].to == n.from {
			prev := &(*s)[i-1]
			prev.crc, prev.to = crc32c.Join(prev.crc, next.crc, next.to-next.from), next.to
			*s = slices.Delete(*s, i, i+1)
		}
		return
	}
	if i > 0 && (*s)[i-1].to == n.from {
		prev := &(*s)[i-1]
		prev.crc, prev.to = crc32c.Join(prev.crc, n.crc, n.to-n.from), n.to
		return
	}
	*s = slices.Insert(*s, i, n)
}

// prefix is the sum of the first n bytes. They end where a piece ended.
func (s checksums) prefix(n int64) uint32 {
	if n == 0 || len(s) == 0 || s[0].from != 0 || s[0].to != n {
		return 0
	}
	return s[0].crc
}
