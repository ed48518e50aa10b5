package human

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Colours are added to words, and take none away.
func TestPaint(t *testing.T) {
	text := "a ══ 2.9 MiB ══▶ [host memory] ══▶ gpu:0\nnot by nvfs: no module (fix: modprobe nvidia-fs (as root))\nDirect: yes\n███░░ 60%\n"
	got := Paint(text)
	if escapes.ReplaceAllString(got, "") != text {
		t.Errorf("the text without colours is %q", escapes.ReplaceAllString(got, ""))
	}
	for _, want := range []string{
		cyan + "══▶" + normal, yellow + "[host memory]" + normal, yellow + "(fix: modprobe nvidia-fs (as root))" + normal,
		green + "Direct:" + normal, green + "███" + normal + dim + "░░" + normal,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	for line := range strings.Lines(got) {
		if strings.Count(line, normal) != len(escapes.FindAllString(line, -1))/2 {
			t.Errorf("a colour does not end in its line: %q", line)
		}
	}
	if plain := "two words (no fix)\n"; Paint(plain) != plain {
		t.Errorf("%q", Paint(plain))
	}
}

// Progress has as many columns with colours as without.
func TestPaintedProgress(t *testing.T) {
	render := func(time.Time, int) []string { return []string{Bar(50, 100, 200)} }
	d, out, _ := testDisplay(true)
	d.Draw(render)
	bare := out.String()
	d, out, _ = testDisplay(true)
	d.paint = true
	d.Draw(render)
	if out.String() == bare || escapes.ReplaceAllString(out.String(), "") != bare {
		t.Errorf("with colours %q, without %q", out, bare)
	}
}

func TestColoured(t *testing.T) {
	for name, want := range map[string]bool{"": false, "dumb": false, "xterm-256color": true, "linux": true} {
		if coloured("1", name) {
			t.Errorf("NO_COLOR=1 TERM=%q", name)
		}
		if coloured("", name) != want {
			t.Errorf("TERM=%q: %v", name, !want)
		}
	}
}
