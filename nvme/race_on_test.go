//go:build race

package nvme_test

const raceEnabled = true
