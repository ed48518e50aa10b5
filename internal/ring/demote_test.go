package ring

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A hint changes nothing that can be seen, whatever the range.
func TestHintChangesNothing(t *testing.T) {
	mem := make([]byte, 2*hintMax)
	rand.NewChaCha8([32]byte{1}).Read(mem)
	want := bytes.Clone(mem)
	for _, c := range [][2]int{{0, 0}, {0, 1}, {63, 65}, {1, 4097}, {len(mem) - 1, len(mem)}, {17, hintMax}, {0, len(mem)}} {
		hint(mem[c[0]:c[1]])
	}
	if !bytes.Equal(mem, want) {
		t.Error("memory changed")
	}
}
