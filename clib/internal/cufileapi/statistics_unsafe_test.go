package cufileapi

import (
	"testing"
	"unsafe"
)

// The sizes in NVIDIA's header. Offsets follow: Go and C lay out structs of numbers
// alike.
func TestSizesOfStatistics(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"CUfileStatsLevel1_t", unsafe.Sizeof(statsLevel1{}), 512},
		{"CUfileStatsLevel2_t", unsafe.Sizeof(statsLevel2{}), 1024},
		{"CUfilePerGpuStats_t", unsafe.Sizeof(gpuStats{}), 248},
		{"CUfileStatsLevel3_t", unsafe.Sizeof(statsLevel3{}), 5000},
	} {
		if c.got != c.want {
			t.Errorf("%s has %d bytes, want %d", c.name, c.got, c.want)
		}
	}
}

func TestBin(t *testing.T) {
	for n, want := range map[int64]int{0: 0, 1: 0, 4096: 0, 4097: 1, 8192: 1, 8193: 2, 1 << 20: 8, 1 << 62: 31} {
		if got := bin(n); got != want {
			t.Errorf("%d bytes are counted in bin %d, want %d", n, got, want)
		}
	}
}
