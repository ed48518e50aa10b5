package gpu_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
)

func TestSpanSlice(t *testing.T) {
	s := gpu.Span{Dev: 1, Base: 0x1000, Off: 16, Len: 100}
	if got, want := s.Slice(10, 20), (gpu.Span{Dev: 1, Base: 0x1000, Off: 26, Len: 20}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := s.Slice(100, 0); got.Len != 0 || got.Addr() != 0x1000+116 {
		t.Errorf("empty end: %v", got)
	}
	if got, want := s.String(), "gpu:1 0x1000+0x10[100]"; got != want {
		t.Errorf("prints %q, want %q", got, want)
	}
}

func TestSpanSlicePanics(t *testing.T) {
	s := gpu.Span{Len: 100}
	for _, r := range [][2]uint64{{101, 0}, {0, 101}, {50, 51}, {math.MaxUint64, 2}, {1, math.MaxUint64}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("slice [%d:+%d] of 100 bytes is taken", r[0], r[1])
				}
			}()
			s.Slice(r[0], r[1])
		}()
	}
}

// Contains must not be fooled by sums that wrap around.
func TestPointerContains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Uint64Range(0, 1<<20).Draw(t, "base")
		size := rapid.Uint64Range(0, 1<<20).Draw(t, "size")
		far := rapid.SampledFrom([]uint64{0, 0, math.MaxUint64 - 1<<21}).Draw(t, "far")
		a := rapid.Uint64Range(0, 1<<21).Draw(t, "a") + far
		n := rapid.Uint64Range(0, 1<<21).Draw(t, "n") + rapid.SampledFrom([]uint64{0, 0, math.MaxUint64 - 1<<22}).Draw(t, "long")
		want := a >= base && a-base <= size && n <= size-(a-base)
		if got := (gpu.Pointer{Base: gpu.Addr(base), Size: size}).Contains(gpu.Addr(a), n); got != want {
			t.Errorf("[%#x,+%#x) contains %#x+%#x: %v", base, size, a, n, got)
		}
	})
}

func TestKind(t *testing.T) {
	for k, want := range map[gpu.Kind]string{
		gpu.KindNone: "none", gpu.KindDevice: "device", gpu.KindVirtual: "virtual", gpu.KindHost: "host",
		gpu.KindRegistered: "registered", gpu.KindManaged: "managed", 99: "Kind(99)",
	} {
		if k.String() != want {
			t.Errorf("kind %d prints %q", k, k)
		}
		if k.OnDevice() != (want == "device" || want == "virtual") {
			t.Errorf("%v.OnDevice() = %v", k, k.OnDevice())
		}
	}
}

func TestDim(t *testing.T) {
	for d, want := range map[gpu.Dim]uint64{
		{}: 1, {X: 5}: 5, {Y: 3}: 3, {X: 2, Y: 3, Z: 4}: 24,
		{X: math.MaxInt32, Y: 65535}: math.MaxInt32 * 65535,
	} {
		if got := d.Threads(); got != want {
			t.Errorf("%v has %d threads, want %d", d, got, want)
		}
	}
}

func TestHostBytes(t *testing.T) {
	b := make([]byte, 64)
	view := gpu.HostBytes(gpu.HostAddr(b)+8, 4)
	copy(view, "abcd")
	if string(b[8:12]) != "abcd" || len(view) != 4 {
		t.Errorf("view of %d bytes, memory %q", len(view), b)
	}
}
