package human

import (
	"strings"
	"testing"
)

// Names are shortened to columns, whatever their letters: a line that is wider than the
// screen breaks, and what is drawn over it later leaves a part.
func TestShorten(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"model-00004-of-00010.safetensors", 40, "model-00004-of-00010.safetensors"},
		{"model-00004-of-00010.safetensors", 20, "model~10.safetensors"},
		{"model", 4, "mode"},
		{"model", 0, ""},
		{"model", -1, ""},
		{"模型模型模型模型.bin", 20, "模型模型模型模型.bin"},
		{"模型模型模型模型.bin", 16, "模型~型模型.bin"},
		{"模型模型模型模型.bin", 15, "模~模型模型.bin"},
		{"👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", 9, "👩‍👩‍👧~👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301e\u0301", 8, "e\u0301e\u0301~e\u0301e\u0301e\u0301e\u0301e\u0301"},
	} {
		got := Shorten(c.name, c.width)
		if got != c.want || Columns(got) > max(c.width, 0) {
			t.Errorf("%q in %d columns: %q in %d, want %q", c.name, c.width, got, Columns(got), c.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("模型🏳️‍🌈\xff.bin", 9)
	f.Fuzz(func(t *testing.T, name string, width int) {
		name = strings.Map(printable, name)
		if got := Shorten(name, width%300); Columns(got) > max(width%300, 0) {
			t.Errorf("%q in %d columns: %q", name, width%300, got)
		}
	})
}
