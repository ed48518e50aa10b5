//go:build race

package dl

// The race detector makes sync.Pool forget at random.
const raceEnabled = true
