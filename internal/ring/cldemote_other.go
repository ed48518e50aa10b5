//go:build !amd64

package ring

// cldemote does nothing: only amd64 has the instruction.
func cldemote([]byte) {}
