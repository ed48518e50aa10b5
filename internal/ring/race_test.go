//go:build race

package ring

const race = true
