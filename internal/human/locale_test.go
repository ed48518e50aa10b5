package human

import (
	"strings"
	"testing"
)

func TestLocale(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		ascii            bool
	}{
		{"", "", "", false},
		{"C", "", "en_US.UTF-8", true},
		{"", "POSIX", "en_US.UTF-8", true},
		{"C.UTF-8", "C", "C", false},
		{"", "", "de_DE.UTF-8", false},
	} {
		t.Setenv("LC_ALL", c.all)
		t.Setenv("LC_CTYPE", c.ctype)
		t.Setenv("LANG", c.lang)
		if ASCII() != c.ascii {
			t.Errorf("%+v: ASCII is %t", c, ASCII())
		}
	}
}

func TestPlain(t *testing.T) {
	var b strings.Builder
	in := "naïve.bin ══ 23 B ══▶ [BAR1] 4.4 µs\n   └─ md91 ▁█"
	if n, err := PlainWriter(&b).Write([]byte(in)); n != len(in) || err != nil {
		t.Errorf("wrote %d of %d: %v", n, len(in), err)
	}
	if want := "naïve.bin == 23 B ==> [BAR1] 4.4 us\n   `- md91 .#"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestBar(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		width       int
		want        string
	}{
		{0, 10, 10, "░░░░░░░░░░"},
		{5, 10, 10, "█████░░░░░"},
		{10, 10, 4, "████"},
		{0, 0, 4, "████"},
		{1, 10, 0, ""},
	} {
		if got := Bar(c.done, c.total, c.width); got != c.want {
			t.Errorf("Bar(%d, %d, %d) = %q, want %q", c.done, c.total, c.width, got, c.want)
		}
	}
}
