package human

import (
	"strings"

	"github.com/rivo/uniseg"
)

// Columns is how many columns of a terminal a text takes: signs of Chinese, Japanese and
// Korean and emoji take two, an accent that is a sign of its own takes none.
func Columns(s string) int { return uniseg.StringWidth(s) }

// Cut returns the beginning of a text, as much of it as a width has room for.
func Cut(s string, width int) string {
	rest, used := s, 0
	for state := -1; rest != ""; {
		_, after, columns, next := uniseg.FirstGraphemeClusterInString(rest, state)
		if used += columns; used > width {
			break
		}
		rest, state = after, next
	}
	return s[:len(s)-len(rest)]
}

// cutLeft returns the end of a text, as much of it as a width has room for.
func cutLeft(s string, width int) string {
	rest, left := s, Columns(s)
	for state := -1; rest != "" && left > width; {
		_, after, columns, next := uniseg.FirstGraphemeClusterInString(rest, state)
		rest, left, state = after, left-columns, next
	}
	return rest
}

// Shorten drops the middle of a name, because the end of a path says most.
func Shorten(s string, width int) string {
	if Columns(s) <= width {
		return s
	}
	if width < 8 {
		return Cut(s, width)
	}
	head := Cut(s, width/4)
	return head + "~" + cutLeft(strings.TrimPrefix(s, head), width-Columns(head)-1)
}
