package nvme

import (
	"fmt"
	"sync/atomic"
)

// A namespace is a [Namespace] in use.
type namespace struct {
	Medium
	shift uint         // of the block size
	known atomic.Int64 // number of blocks when the medium was last asked
}

func newNamespace(n Namespace) (*namespace, error) {
	if n.BlockSize == 0 {
		n.BlockSize = 512
	}
	ns := &namespace{Medium: n.Medium}
	for 1<<ns.shift < n.BlockSize {
		ns.shift++
	}
	if n.BlockSize < 512 || n.BlockSize > 4096 || 1<<ns.shift != n.BlockSize {
		return nil, fmt.Errorf("block size %d must be a power of two from 512 to 4096", n.BlockSize)
	}
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
