package cmem_test

import (
	"testing"

	"github.com/culvert-io/culvert/clib/internal/cmem"
)

func TestLoadStore(t *testing.T) {
	var word [4]uint32
	p := cmem.PtrTo(&word[0])
	cmem.Store(cmem.At[uint32](p, 2), uint32(7))
	if word[2] != 7 || cmem.Load[uint32](p+8) != 7 {
		t.Errorf("stored at 2: %v", word)
	}
}

func TestString(t *testing.T) {
	text := []byte("strrev\x00and more")
	p := cmem.PtrTo(&text[0])
	if s, ok := cmem.String(p, 64); s != "strrev" || !ok {
		t.Errorf("String = %q, %v", s, ok)
	}
	if s, ok := cmem.String(p, 6); s != "strrev" || !ok {
		t.Errorf("String with just enough room = %q, %v", s, ok)
	}
	if s, ok := cmem.String(p, 5); ok {
		t.Errorf("String took %q for a string of at most 5", s)
	}
}

func TestPutString(t *testing.T) {
	for n, want := range map[int]string{0: "....", 1: "\x00...", 3: "ab\x00.", 4: "abc\x00"} {
		room := []byte("....")
		if cmem.PutString(cmem.PtrTo(&room[0]), n, "abc"); string(room) != want {
			t.Errorf("PutString into %d bytes: %q, want %q", n, room, want)
		}
	}
}
