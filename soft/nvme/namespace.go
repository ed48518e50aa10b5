package nvme

import (
	"cmp"
	"fmt"
	"math/bits"
	"sync/atomic"
)

// A namespace is a [Namespace] in use.
type namespace struct {
	Medium
	shift int          // of the block size
	known atomic.Int64 // number of blocks when the medium was last asked
}

func newNamespace(n Namespace) (*namespace, error) {
	size := cmp.Or(n.BlockSize, 512)
	if size < 512 || size > 4096 || size&(size-1) != 0 {
		return nil, fmt.Errorf("block size %d must be a power of two from 512 to 4096", size)
	}
	ns := &namespace{Medium: n.Medium, shift: bits.TrailingZeros(uint(size))}
	_, err := ns.blocks()
	return ns, err
}

// blocks asks the medium for its size. A partial last block counts: the rest reads as
// zeros, and writing it extends the medium.
func (ns *namespace) blocks() (uint64, error) {
	size, err := ns.Size()
	if err != nil {
		return 0, err
	}
	n := (size + 1<<ns.shift - 1) >> ns.shift
	ns.known.Store(n)
	return uint64(n), nil
}

// holds reports whether n blocks from lba exist. It asks the medium only if it must
// have grown.
func (ns *namespace) holds(lba, n uint64) bool {
	inside := func(end uint64) bool { return n <= end && lba <= end-n }
	if inside(uint64(ns.known.Load())) {
		return true
	}
	end, err := ns.blocks()
	return err == nil && inside(end)
}
