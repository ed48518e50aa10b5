//go:build race

package ring

// inPlace is off: the race detector does not see memory that is mapped, and the
// software GPU can have its pinned memory on the heap.
const inPlace = false
