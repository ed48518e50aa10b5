package ring

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A hint changes nothing that can be seen, whatever the range.
func TestDemoteChangesNothing(t *testing.T) {
	mem := make([]byte, 2*demoteMax)
	rand.NewChaCha8([32]byte{1}).Read(mem)
	want := bytes.Clone(mem)
	for _, c := range [][2]int{{0, 0}, {0, 1}, {63, 65}, {1, 4097}, {len(mem) - 1, len(mem)}, {17, demoteMax}, {0, len(mem)}} {
		cldemote(mem[c[0]:c[1]])
	}
	if !bytes.Equal(mem, want) {
		t.Error("memory changed")
	}
}
