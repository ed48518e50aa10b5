//go:build race

package cufile_test

const raceEnabled = true
