package softrt

import (
	"testing"

	"github.com/culvert-io/culvert/clib/internal/softcuda"
)

// The sizes of struct cudaDeviceProp in CUDA's releases. That the members are
// where they should be is for the C tests, here and on hardware.
func TestSizesOfDeviceProp(t *testing.T) {
	r := New(softcuda.New(nil, nil)) // without a machine all members are zero
	for rel, want := range map[release]int{cuda11: 728, cuda12: 1032, cuda13: 1008} {
		if got := len(r.members(make([]byte, headSize), 0, rel)); got != want {
			t.Errorf("CUDA %d: %d bytes, want %d", rel, got, want)
		}
	}
}
