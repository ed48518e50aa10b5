//go:build race

package mmio

import "sync/atomic"

// store is atomic with the race detector, which watches the memory of a software
// controller's registers.
func store(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
