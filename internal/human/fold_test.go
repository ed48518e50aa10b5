package human

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 20, "short"},
		{"a line that is a little too long for it", 20, "a line that is a\n  little too long\n  for it"},
		{"name     a value of several words\nnext\n", 24, "name     a value of\n         several words\nnext\n"},
		{"  in  deep  last field is too far right", 20, "  in  deep  last\n            field is\n            too far\n            right"},
		{"/a/path/that/is/longer/than/that is kept whole", 20, "/a/path/that/is/longer/than/that\n  is kept whole"},
		{"\x1b[31mred\x1b[0m words are as wide as others", 24, "\x1b[31mred\x1b[0m words are as wide as\n  others"},
		{"0 folds nothing, however long the line may become", 0, "0 folds nothing, however long the line may become"},
		{"ends in blanks        ", 20, "ends in blanks"},
		{"read 1.0 MiB in 12 ms, 9.99 GB/s", 20, "read 1.0 MiB in\n  12 ms, 9.99 GB/s"},
		{"model.bin ══ 1.0 MiB ══▶ [ring]", 22, "model.bin\n  ══ 1.0 MiB ══▶\n  [ring]"},
		{"══ ══ ══ ══ ══ ══ ══", 20, "══ ══ ══ ══ ══ ══ ══"},
	} {
		if got := Fold(c.in, c.width); got != c.want {
			t.Errorf("%q in %d columns:\n%q, want\n%q", c.in, c.width, got, c.want)
		}
	}
}

// A line is folded as a whole, however it was written.
func TestFoldWriter(t *testing.T) {
	var b strings.Builder
	w := NewFoldWriter(&b, 20)
	text := "the words of a line\nthat come one by one, the last without an end"
	for _, word := range strings.SplitAfter(text, " ") {
		if n, err := w.Write([]byte(word)); n != len(word) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := Fold(text, 20); b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// Nothing is lost, and lines of short words fit.
func FuzzFold(f *testing.F) {
	f.Add("name     a value of several words, and /a/long/path/to/it\n", 24)
	f.Add("a == 1.0 MiB ==> [b] 9.99 GB/s", 20)
	f.Add("\x1b[31m", 40)
	f.Fuzz(func(t *testing.T, text string, width int) {
		got := Fold(text, width)
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(text), " ") {
			t.Errorf("%q became %q", text, got)
		}
		short := !strings.Contains(text, "\x1b")
		for _, word := range strings.Fields(text) {
			short = short && columns(word) <= width/8
		}
		for line := range strings.Lines(got) {
			if n := columns(strings.TrimSpace(line)); width >= minFold && n > width && short {
				t.Errorf("%q has %d columns of %d", line, n, width)
			}
		}
	})
}

func TestReflow(t *testing.T) {
	in := "A paragraph of\ntwo lines, the second of which is too long.\n\nA short one.\n\nSHORT\n  0  done\n  1  an error that is explained in\n     two lines\n  2  wrong\n\nfits\nthe screen"
	want := "A paragraph of two lines, the\nsecond of which is too long.\n\nA short one.\n\nSHORT\n  0  done\n  1  an error that is\n     explained in two lines\n  2  wrong\n\nfits\nthe screen"
	if got := Reflow(in, 30); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Reflow(in, 0); got != in {
		t.Errorf("%q", got)
	}
}
