package human

import (
	"cmp"
	"io"
	"strings"

	"github.com/culvert-io/culvert/internal/env"
)

// ASCII reports whether the locale asks for plain ASCII: LC_ALL=C. A locale that is
// not set asks for nothing.
func ASCII() bool {
	switch cmp.Or(env.Get("LC_ALL"), env.Get("LC_CTYPE"), env.Get("LANG")) {
	case "C", "POSIX":
		return true
	}
	return false
}

var plain = strings.NewReplacer(
	"══▶", "==>", "═", "=", "▶", ">", "└─", "`-", "├─", "|-", "│", "|", "◀", "<", "µ", "u", "…", "...", "–", "-", "×", "x", "÷", "/",
	"▁", ".", "▂", ".", "▃", ":", "▄", "-", "▅", "=", "▆", "+", "▇", "*", "█", "#", "░", ".",
)

// Plain replaces the signs that Culvert draws with by ASCII. Names keep theirs.
func Plain(s string) string { return plain.Replace(s) }

// PlainWriter writes to w what Plain returns.
func PlainWriter(w io.Writer) io.Writer { return translator{w, Plain} }
