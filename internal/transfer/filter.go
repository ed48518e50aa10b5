package transfer

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A Filter chooses entries of directories by patterns with *, ?, [a-z], [!a-z] and {a,b}. A
// pattern without a slash is compared with names, one with a slash with the path below
// the directory, in which ** is any number of directories, and at the end all that is below.
// A slash at the end means a directory. It remembers which patterns matched, over all plans
// that share it. A nil Filter chooses everything.
type Filter struct {
	include []*pattern // files must match one of them, if there are any
	exclude []*pattern // files and directories must match none of them
}

// A pattern is one argument of the command line.
type pattern struct {
	text    string
	of      [][]string // its alternatives: elements of a path for path.Match, or a name
	dir     bool       // matches directories only
	matched bool
}

// NewFilter parses patterns.
func NewFilter(include, exclude []string) (*Filter, error) {
	f := &Filter{}
	var err error
	if f.include, err = parsePatterns(include); err != nil {
		return nil, err
	}
	f.exclude, err = parsePatterns(exclude)
	return f, err
}

func parsePatterns(texts []string) (list []*pattern, err error) {
	for _, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func parsePattern(text string) (*pattern, error) {
	bare, isDir := strings.CutSuffix(strings.TrimPrefix(text, "./"), "/")
	p := &pattern{text: text, dir: isDir}
	list := alternatives(bare, nil)
	if len(list) > maxAlternatives {
		return nil, fmt.Errorf("pattern %q has more than %d alternatives", text, maxAlternatives)
	}
	for _, one := range list {
		elements := strings.Split(strings.TrimPrefix(one, "/"), "/")
		if len(elements) == 1 && strings.HasPrefix(one, "/") {
			elements = []string{"", elements[0]} // of the top
		}
		for i, e := range elements {
			elements[i] = negated(e)
			switch _, err := path.Match(elements[i], ""); {
			case err != nil || bare == "":
				return nil, fmt.Errorf("invalid pattern %q (want *, ?, [a-z], [!a-z], {a,b} and **/)", text)
			case strings.Contains(e, anyDirs) && e != anyDirs:
				return nil, fmt.Errorf("invalid pattern %q: ** is all of a name, as in a/**/b or a/**", text)
			}
		}
		p.of = append(p.of, elements)
	}
	return p, nil
}

// anyDirs is any number of directories, also none; at the end of a pattern, what is below them.
const anyDirs = "**"

// negated writes [!a] as [^a], which path.Match knows.
func negated(text string) string {
	b := []byte(text)
	for i, class := 0, false; i < len(b); i++ {
		switch {
		case b[i] == '\\':
			i++
		case b[i] == '[' && !class:
			if class = true; i+1 < len(b) && b[i+1] == '!' {
				b[i+1] = '^'
			}
		case b[i] == ']':
			class = false
		}
	}
	return string(b)
}

// maxAlternatives limits the alternatives of a pattern: each pair of braces multiplies them.
const maxAlternatives = 1000

// alternatives appends a pattern to a list, once for each choice in braces. Braces without
// a comma are ordinary letters, as in a shell. It stops soon after maxAlternatives.
func alternatives(text string, list []string) []string {
	open, choices, rest := braces(text)
	if choices == nil {
		return append(list, text)
	}
	for _, choice := range choices {
		if len(list) > maxAlternatives {
			break
		}
		list = alternatives(text[:open]+choice+rest, list)
	}
	return list
}

// braces finds the first braces with a comma: where they open, the choices in them and
// what follows. choices is nil if there are none.
func braces(text string) (open int, choices []string, rest string) {
	for open = 0; open < len(text); open++ {
		switch text[open] {
		case '\\':
			open++
		case '{':
			if choices, rest := choicesIn(text[open+1:]); len(choices) > 1 {
				return open, choices, rest
			}
		}
	}
	return 0, nil, ""
}

// choicesIn splits what follows an opening brace, to the brace that closes it.
func choicesIn(text string) (choices []string, rest string) {
	depth, begin := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == ',' && depth == 0:
			choices, begin = append(choices, text[begin:i]), i+1
		case c == '}':
			return append(choices, text[begin:i]), text[i+1:]
		}
	}
	return nil, ""
}

// match compares the pattern with the path of a file or directory.
func (p *pattern) match(rel string, isDir bool) bool {
	if p.dir && !isDir {
		return false
	}
	elements := strings.Split(rel, "/")
	found := slices.ContainsFunc(p.of, func(one []string) bool {
		switch {
		case len(one) == 1:
			return matchPath(one, elements[len(elements)-1:])
		case one[0] == "":
			return matchPath(one[1:], elements)
		}
		return matchPath(one, elements)
	})
	p.matched = p.matched || found
	return found
}

// matchPath compares the elements of a path with those of a pattern. Where they differ, the
// last ** before takes an element more.
func matchPath(pattern, rel []string) bool {
	dirs, from := -1, 0 // the last **, and what follows the elements that it took
	for p, r := 0, 0; ; {
		switch {
		case r == len(rel):
			return p == len(pattern)
		case p < len(pattern) && pattern[p] == anyDirs:
			dirs, from, p = p, r, p+1
		case p < len(pattern) && matchName(pattern[p], rel[r]):
			p, r = p+1, r+1
		case dirs >= 0:
			from++
			p, r = dirs+1, from
		default:
			return false
		}
	}
}

func matchName(pattern, name string) bool {
	ok, _ := path.Match(pattern, name)
	return ok
}

// matches compares all patterns, so that each one that matches is marked.
func matches(patterns []*pattern, rel string, isDir bool) (found bool) {
	for _, p := range patterns {
		found = p.match(rel, isDir) || found
	}
	return found
}

// excludes reports whether a file or directory, and so all below it, is left out.
func (f *Filter) excludes(rel string, isDir bool) bool {
	return f != nil && matches(f.exclude, rel, isDir)
}

// excludesBelow reports whether a file or one of the directories above it is left out.
func (f *Filter) excludesBelow(rel string) bool {
	for isDir := false; rel != "."; rel, isDir = path.Dir(rel), true {
		if f.excludes(rel, isDir) {
			return true
		}
	}
	return false
}

// includes reports whether a file is wanted: it matches, or it is below a directory that
// matches a pattern with a slash at its end.
func (f *Filter) includes(rel string) bool {
	if f == nil || len(f.include) == 0 {
		return true
	}
	found := matches(f.include, rel, false)
	for rel = path.Dir(rel); rel != "."; rel = path.Dir(rel) {
		for _, p := range f.include {
			found = p.dir && p.match(rel, true) || found
		}
	}
	return found
}

// Unmatched returns the patterns that matched nothing in all plans so far, and whether
// that leaves no file to include.
func (f *Filter) Unmatched() (list []string, none bool) {
	if f == nil {
		return nil, false
	}
	none = len(f.include) > 0
	for _, p := range slices.Concat(f.include, f.exclude) {
		if !p.matched {
			list = append(list, p.text)
		}
	}
	for _, p := range f.include {
		none = none && !p.matched
	}
	return list, none
}
