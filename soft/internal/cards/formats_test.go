package cards

import (
	"os"
	"testing"
)

// Files of released versions are read.
func TestFormats(t *testing.T) {
	text, err := os.ReadFile("testdata/formats/v1/shared")
	must(t, err)
	h, lines, err := parseDirectory(text)
	must(t, err)
	if want := (directoryHead{0x1122334455667788, 77, 4026531836}); h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	for i, l := range lines {
		var want line
		switch i {
		case 0:
			want = line{process{26141, 107686, 0x7ffd4a6b8910}, 5}
		case 255:
			want = line{process{9, 1, 0}, 1023}
		}
		if l != want {
			t.Errorf("line %d: %+v, want %+v", i, l, want)
		}
	}
}
