//go:build !race

package mmio

// store is a plain store. An atomic one would be an exchange on amd64, which
// reads the register too and locks the bus for that. It is not inlined, so that
// the compiler moves nothing across it.
//
//go:noinline
func store(p *uint32, v uint32) { *p = v }
