//go:build !race

package ring

// inPlace says that large slabs are pinned in place.
const inPlace = true
