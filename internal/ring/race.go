//go:build race

package ring

// race is true in builds with the race detector. It does not see mapped memory, so
// that the driver allocates slots then: the software GPU can use the heap.
const race = true
