//go:build !race

package mmio

// store is a plain store. An atomic store is an exchange on amd64, which also
// reads the register and locks the bus. It is not inlined, so that the compiler
// does not reorder stores around it.
//
//go:noinline
func store(p *uint32, v uint32) { *p = v }
