//go:build race

package ring

// race says that the race detector runs. It does not see memory that is mapped, so
// that slots are the driver's then, which the software GPU can have on the heap.
const race = true
