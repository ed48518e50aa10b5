//go:build !race

package ibverbs

const raceEnabled = false
