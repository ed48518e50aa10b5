//go:build !amd64

package ring

// hint would tell the processor that a device will read b next.
func hint([]byte) {}
