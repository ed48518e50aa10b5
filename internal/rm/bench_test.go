package rm_test

import (
	"fmt"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

// BenchmarkStore shows what a window adds to the copy itself.
func BenchmarkStore(b *testing.B) {
	m := newMachine(b, config{})
	d := m.device(b, 0)
	w, err := m.mapper(b, d).Map(alloc(b, d, gpu.KindVirtual, 2<<20), 2<<20)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	for _, n := range []int{64, 4096} {
		src := make([]byte, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := storeTo(w, 0, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
