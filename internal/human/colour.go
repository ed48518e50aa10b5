package human

import (
	"io"
	"os"
	"regexp"

	"golang.org/x/term"

	"github.com/culvert-io/culvert/internal/env"
)

// IsTerminal reports whether people read what is written to f.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Coloured reports whether what is written to f may have colours: it is a terminal that
// has them, and NO_COLOR (https://no-color.org) does not forbid them.
func Coloured(f *os.File) bool {
	return coloured(env.Get("NO_COLOR"), env.Get("TERM")) && IsTerminal(f)
}

func coloured(forbidden, terminal string) bool {
	return forbidden == "" && terminal != "" && terminal != "dumb"
}

// The colours of a terminal, which its user has chosen.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	dim    = "\x1b[2m"
	normal = "\x1b[0m"
)

// painted has what is painted, and how. The words stay the same: a reader without
// colours misses nothing.
var painted = []struct {
	what *regexp.Regexp
	in   string
}{
	{regexp.MustCompile(`█+`), green},
	{regexp.MustCompile(`░+`), dim},
	{regexp.MustCompile(`═+▶?`), cyan},
	{regexp.MustCompile(`(?m)\(fix: .*\)$`), yellow},
	{regexp.MustCompile(`\[host memory\]`), yellow},
	{regexp.MustCompile(`◀( narrowest)?`), yellow},
	{regexp.MustCompile(`(?m)^Direct:`), green},
	{regexp.MustCompile(`(?m)^Not direct:`), yellow},
}

// Paint adds colours to a text.
func Paint(text string) string {
	for _, p := range painted {
		text = p.what.ReplaceAllString(text, p.in+"$0"+normal)
	}
	return text
}

// Red paints a word that announces an error, if f may have colours.
func Red(f *os.File, word string) string {
	if !Coloured(f) {
		return word
	}
	return red + word + normal
}

// PaintWriter writes to w what Paint returns.
func PaintWriter(w io.Writer) io.Writer { return translator{w, Paint} }

// A translator writes to w what it makes of a text.
type translator struct {
	w         io.Writer
	translate func(string) string
}

func (t translator) Write(b []byte) (int, error) {
	if _, err := io.WriteString(t.w, t.translate(string(b))); err != nil {
		return 0, err
	}
	return len(b), nil
}
