package ring

import (
	"slices"

	"github.com/culvert-io/culvert/internal/crc32c"
)

// A summedRange is a range of a request whose CRC-32C is known.
type summedRange struct {
	from, to int64
	crc      uint32
}

// join returns the range of two adjacent ones.
func (r summedRange) join(next summedRange) summedRange {
	return summedRange{r.from, next.to, crc32c.Join(r.crc, next.crc, next.to-next.from)}
}

// checksums are the ranges of a request, in order, with adjacent ones joined. Chunks
// are taken in order and only so many are in flight, so the list stays short
// however long the request is.
type checksums []summedRange

func (s *checksums) add(r summedRange) {
	if r.from == r.to {
		return
	}
	list := *s
	i, _ := slices.BinarySearchFunc(list, r.from, func(e summedRange, from int64) int { return int(e.from - from) })
	if i < len(list) && list[i].from == r.to {
		r = r.join(list[i])
		list = slices.Delete(list, i, i+1)
	}
	if i > 0 && list[i-1].to == r.from {
		list[i-1] = list[i-1].join(r)
	} else {
		list = slices.Insert(list, i, r)
	}
	*s = list
}

// prefix is the CRC-32C of the first n bytes, which must end where a chunk ended.
func (s checksums) prefix(n int64) uint32 {
	if n == 0 || len(s) == 0 || s[0].from != 0 || s[0].to != n {
		return 0
	}
	return s[0].crc
}
