package human

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Width is the number of columns of the terminal that f is; 0 if it is none.
func Width(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(width, 0)
}

// minFold is the narrowest screen on which lines are folded: below it nothing helps.
const minFold = 20

// Fold breaks lines at blanks so that they fit a width. The rest of a line begins in the
// column of its last field, where fields are separated by two blanks, or is indented by
// two more columns than the line. A word that is too long stays whole, so that a path can still
// be copied. A width of 0 breaks nothing.
func Fold(text string, width int) string {
	if width < minFold {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		end := line[len(strings.TrimRight(line, "\n")):]
		line = strings.TrimSuffix(line, "\n")
		foldLine(&b, line, width, hanging(line, width))
		b.WriteString(end)
	}
	return b.String()
}

// foldLine breaks a line, whose rest begins in the column below.
func foldLine(b *strings.Builder, line string, width, below int) {
	if columns(line) <= width {
		b.WriteString(line)
		return
	}
	indent := strings.Repeat(" ", below)
	at, gap := 0, ""
	for i := 0; strings.TrimLeft(line, " ") != ""; i++ {
		blanks := len(line) - len(strings.TrimLeft(line, " "))
		gap, line = line[:blanks], line[blanks:]
		end := wordEnd(line, 0)
		for next := wordEnd(line, end+1); end < len(line) && glued(line[:end], line[end+1:next]); next = wordEnd(line, end+1) {
			end = next
		}
		word := line[:end]
		line = line[end:]
		if n := columns(word); i == 0 || at+len(gap)+n <= width {
			at += len(gap) + n
		} else {
			gap, at = "\n"+indent, len(indent)+n
		}
		b.WriteString(gap + word)
	}
}

func wordEnd(line string, from int) int {
	from = min(from, len(line))
	if i := strings.IndexByte(line[from:], ' '); i >= 0 {
		return from + i
	}
	return len(line)
}

// glued reports whether a word stays on the line of the one before it: a unit, and what
// is written into an arrow.
func glued(before, word string) bool {
	last := colour.ReplaceAllString(before[strings.LastIndexByte(before, ' ')+1:], "")
	word = strings.TrimRight(colour.ReplaceAllString(word, ""), ",.;:)")
	switch {
	case last == "" || word == "":
		return false
	case last == "══" || last == "==" || word == "══▶" || word == "==>":
		return true
	}
	return last[len(last)-1] >= '0' && last[len(last)-1] <= '9' && slices.Contains(units, word)
}

var (
	colour = regexp.MustCompile(`\x1b\[\d*m`)
	units  = strings.Fields("B KiB MiB GiB TiB B/s kB/s MB/s GB/s GT/s ns us µs ms s %")
)

// hanging is the column in which the rest of a line begins: that of its last field that
// leaves two fifths of the width.
func hanging(line string, width int) int {
	text := strings.TrimLeft(line, " ")
	at := len(line) - len(text)
	indent := at + 2
	for {
		i := strings.Index(text, "  ")
		if i < 0 {
			break
		}
		rest := strings.TrimLeft(text[i:], " ")
		at += columns(text[:i]) + len(text) - i - len(rest)
		if text = rest; at > width*3/5 || rest == "" {
			break
		}
		indent = at
	}
	return min(indent, width*3/5)
}

// columns counts the columns of a text, in which colours take none.
func columns(s string) (n int) {
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		n += Columns(before)
		if !found {
			return n
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

// A FoldWriter folds what is written to it. It keeps a line until its end; the caller
// must call Flush.
type FoldWriter struct {
	w     io.Writer
	width int
	line  []byte
}

// NewFoldWriter returns a writer that folds to a width; 0 folds nothing.
func NewFoldWriter(w io.Writer, width int) *FoldWriter { return &FoldWriter{w: w, width: width} }

// Write implements io.Writer.
func (f *FoldWriter) Write(p []byte) (int, error) {
	if f.width < minFold {
		return f.w.Write(p)
	}
	f.line = append(f.line, p...)
	end := bytes.LastIndexByte(f.line, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	_, err := io.WriteString(f.w, Fold(string(f.line[:end]), f.width))
	f.line = f.line[end:]
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes a line that has not ended.
func (f *FoldWriter) Flush() error {
	line := f.line
	f.line = nil
	if len(line) == 0 {
		return nil
	}
	_, err := io.WriteString(f.w, Fold(string(line), f.width))
	return err
}

// Reflow folds prose that was broken by hand: where a line is too long for a width, it
// is joined with those that belong to it and broken again. A line belongs to the one
// before it if it begins in the column of its text.
func Reflow(text string, width int) string {
	if width < minFold {
		return text
	}
	var b strings.Builder
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		n, at := 1, textColumn(lines[i])
		for strings.TrimSpace(lines[i]) != "" && i+n < len(lines) && continues(lines[i+n], at) {
			n++
		}
		for _, line := range joined(lines[i:i+n], width) {
			foldLine(&b, line, width, min(at, width*3/5))
			b.WriteByte('\n')
		}
		i += n
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// textColumn is where the text of a line begins: behind the first field of an indented
// line that has two.
func textColumn(line string) int {
	text := strings.TrimLeft(line, " ")
	at := len(line) - len(text)
	if first, _, found := strings.Cut(text, "  "); found && at > 0 {
		rest := strings.TrimLeft(text[len(first):], " ")
		return columns(line) - columns(rest)
	}
	return at
}

func continues(line string, at int) bool {
	return strings.TrimSpace(line) != "" && len(line)-len(strings.TrimLeft(line, " ")) == at && textColumn(line) == at
}

func joined(lines []string, width int) []string {
	fits := true
	for _, l := range lines {
		fits = fits && columns(l) <= width
	}
	if fits {
		return lines
	}
	all := lines[0]
	for _, l := range lines[1:] {
		all += " " + strings.TrimSpace(l)
	}
	return []string{all}
}
