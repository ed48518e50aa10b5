//go:build !race

package ring

const race = false
