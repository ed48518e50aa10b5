package crc32c

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSum(t *testing.T) {
	if got := Sum([]byte("123456789")); got != 0xe3069283 { // the check value of the catalogues
		t.Errorf("sum is %#x", got)
	}
}

func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "data")
		cut := rapid.IntRange(0, len(data)).Draw(t, "cut")
		if got, want := Join(Sum(data[:cut]), Sum(data[cut:]), int64(len(data)-cut)), Sum(data); got != want {
			t.Errorf("%d and %d bytes: %#x, want %#x", cut, len(data)-cut, got, want)
		}
	})
}

// Pieces too long to be summed here: zeros, doubled until they are.
func TestJoinLong(t *testing.T) {
	zeros := Sum(make([]byte, 1<<20))
	sum, n := zeros, int64(1<<20)
	for range 14 {
		sum, n = Join(sum, sum, n), 2*n
	}
	one := zeros
	for range n>>20 - 1 {
		one = Join(one, zeros, 1<<20)
	}
	if sum != one {
		t.Errorf("%d zeros: %#x by doubling, %#x one by one", n, sum, one)
	}
}
