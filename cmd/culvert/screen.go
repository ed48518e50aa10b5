package main

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// A screen is a terminal whose lines can be drawn again; nil where there is none.
type screen struct{ fd int }

func newScreen(f *os.File) *screen {
	if !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &screen{int(f.Fd())}
}

// size is how many characters fit; a terminal that does not know is an ordinary one.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(s.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// fit makes lines fit a screen, on which the cursor stands below them: none is
// broken into two, and none has left it at the top when they are drawn again.
func fit(lines []string, width, height int) []string {
	width, height = max(width-1, 1), max(height-1, 1)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1:height-1], fmt.Sprintf(" and %d more", more+1))
	}
	for i, l := range lines {
		runes := []rune(strings.Map(printable, l))
		lines[i] = string(runes[:min(len(runes), width)])
	}
	return lines
}

// printable keeps names from moving the cursor.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return '?'
	}
	return r
}
