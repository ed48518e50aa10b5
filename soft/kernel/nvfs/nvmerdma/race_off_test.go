//go:build !race

package nvmerdma_test

const raceEnabled = false
