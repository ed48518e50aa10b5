//go:build race

package cuda_test

// The race detector makes sync.Pool forget at random.
const raceEnabled = true
