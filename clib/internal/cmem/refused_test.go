package cmem

import "testing"

// TestRefused: in a sandbox without the system calls, memory is accessed directly.
func TestRefused(t *testing.T) {
	refused.Store(true)
	defer refused.Store(false)
	words := new([3]uint32)
	p := PtrTo(&words[0])
	Store(p+4, uint32(7))
	StoreAll(p+8, []uint32{8})
	if all := LoadAll[uint32](p, 3); Load[uint32](p+4) != 7 || all[0] != 0 || all[1] != 7 || all[2] != 8 {
		t.Errorf("stored %v, loaded %v", *words, all)
	}
	pair := [2]uint64{3, 5}
	if w := ExchangeWords(PtrTo(&pair[1]), PtrTo(&pair[0])); w != [8]uint64{5, 3} || pair != [2]uint64{3, 5} {
		t.Errorf("exchanged %v, now %v", w, pair)
	}
}
