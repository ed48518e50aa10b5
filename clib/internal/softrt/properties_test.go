package softrt

import (
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// The sizes of struct cudaDeviceProp in CUDA's releases. The C tests check the
// offsets of the members, here and on hardware.
func TestSizesOfDeviceProp(t *testing.T) {
	zero := func(gpu.Attribute) int { return 0 }
	for rel, want := range map[release]int{cuda11: 728, cuda12: 1032, cuda13: 1008} {
		if got := len(appendMembers(make([]byte, headSize), rel, zero)); got != want {
			t.Errorf("CUDA %d: %d bytes, want %d", rel, got, want)
		}
	}
}
