// Package p2p mirrors nv-p2p.h: the interface through which kernel modules get
// at the memory of a GPU. No program ever sees these structs; they are here
// because the software kernel speaks of the same versions, page sizes, flags
// and errors, and because modules and their users print them.
package p2p
