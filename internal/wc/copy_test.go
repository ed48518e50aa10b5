package wc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// canary surrounds the destination, so that a stray byte shows.
const canary = 128

type copier func(dst, src []byte) int

var copiers = map[string]copier{"Store": Store, "Load": Load, "LoadNext": LoadNext}

// check copies n bytes between the given positions and looks at every byte of
// the destination and around it.
func check(t *testing.T, c copier, dst, src []byte, to, from, n int) {
	t.Helper()
	for i := range dst {
		dst[i] = 0xA5
	}
	d := dst[canary+to : canary+to+n]
	s := src[canary+from : canary+from+n]
	if got := c(d, s); got != n {
		t.Fatalf("to %d from %d: %d bytes of %d", to, from, got, n)
	}
	Fence()
	if !bytes.Equal(d, s) {
		t.Fatalf("to %d from %d: %d bytes differ from their source", to, from, n)
	}
	for i, b := range dst[:canary+to] {
		if b != 0xA5 {
			t.Fatalf("to %d from %d, %d bytes: byte %d before the destination was written", to, from, n, canary+to-i)
		}
	}
	for i, b := range dst[canary+to+n:] {
		if b != 0xA5 {
			t.Fatalf("to %d from %d, %d bytes: byte %d after the destination was written", to, from, n, i)
		}
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestEveryAlignmentAndSmallSize(t *testing.T) {
	const largest = 300
	bothWays(t, func(t *testing.T) {
		for name, c := range copiers {
			t.Run(name, func(t *testing.T) {
				src := random(largest + 2*canary + 64)
				dst := make([]byte, len(src))
				for align := range 64 {
					other := (align * 29) % 64 // the two sides must not always agree
					for n := range largest + 1 {
						check(t, c, dst, src, align, other, n)
						check(t, c, dst, src, other, align, n)
					}
				}
			})
		}
	})
}

func TestLargeSizes(t *testing.T) {
	bothWays(t, func(t *testing.T) {
		for name, c := range copiers {
			t.Run(name, func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 4))
				src := random(3*chunk + 2*canary + 64)
				dst := make([]byte, len(src))
				sizes := []int{chunk - 1, chunk, chunk + 1, 2*chunk + 63, 3 * chunk}
				for range 40 {
					sizes = append(sizes, r.IntN(3*chunk))
				}
				for _, n := range sizes {
					check(t, c, dst, src, r.IntN(64), r.IntN(64), n)
				}
			})
		}
	})
}

func TestShorterSideDecides(t *testing.T) {
	for name, c := range copiers {
		for _, lens := range [][2]int{{0, 0}, {0, 100}, {100, 0}, {40, 100}, {100, 40}} {
			dst, src := make([]byte, lens[0]), random(lens[1])
			n := c(dst, src)
			if want := min(lens[0], lens[1]); n != want {
				t.Errorf("%s into %d from %d bytes: %d, want %d", name, lens[0], lens[1], n, want)
			}
			if !bytes.Equal(dst[:n], src[:n]) || !bytes.Equal(dst[n:], make([]byte, len(dst)-n)) {
				t.Errorf("%s into %d from %d bytes: wrong bytes", name, lens[0], lens[1])
			}
		}
	}
}

func TestCopiesDoNotAllocate(t *testing.T) {
	dst, src := make([]byte, 4096), random(4096)
	for name, c := range copiers {
		if n := testing.AllocsPerRun(100, func() { c(dst[3:], src[5:]) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func BenchmarkCopies(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10} {
		dst, src := make([]byte, n), random(n)
		for name, c := range copiers {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					c(dst, src)
					Fence()
				}
			})
		}
	}
}
