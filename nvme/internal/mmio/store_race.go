//go:build race

package mmio

import "sync/atomic"

// store is atomic here: the registers are those of a software controller, in
// memory that the race detector watches.
func store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
