package cufileconf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tailscale/hujson"
)

// A Setting is a key and its value, and where it was found.
type Setting struct {
	Key          string // the name with dots
	Value        string // as JSON
	Line, Column int    // 0 for a variable
	Variable     string // the environment variable; empty for a file
	Unknown      bool
	Err          error // an invalid value; the key then has no effect

	from value
}

// Where is the place of the setting in messages.
func (s *Setting) Where() string {
	return cmp.Or(s.Variable, fmt.Sprintf("line %d, column %d", s.Line, s.Column))
}

// maxSize and maxDepth are far more than a configuration has.
const (
	maxSize  = 256 << 10
	maxDepth = 32
)

// ReadFile reads the settings of a file.
func ReadFile(name string) ([]Setting, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, err
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// Parse returns the settings of a file in their order. Comments and commas behind the
// last member are allowed.
func Parse(text []byte) ([]Setting, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	if depth(text) > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	v, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	top, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	p := parser{text: text}
	p.object("", top)
	return p.found, nil
}

// depth is how deep lists and objects are nested, in valid text: the parser calls itself
// for each. Brackets in strings and comments do not count.
func depth(text []byte) (most int) {
	now := 0
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case rest[0] == '"':
			i += quoted(rest)
		case bytes.HasPrefix(rest, []byte("//")):
			i += skip(rest, "\n")
		case bytes.HasPrefix(rest, []byte("/*")):
			i += 2 + skip(rest[2:], "*/")
		case rest[0] == '{' || rest[0] == '[':
			now++
			most = max(most, now)
		case rest[0] == '}' || rest[0] == ']':
			now--
		}
	}
	return most
}

// quoted is the offset of the quote that ends a string, or of the end.
func quoted(s []byte) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(s)
}

// skip is the offset of the last byte of end, or of the end.
func skip(s []byte, end string) int {
	if i := bytes.Index(s, []byte(end)); i >= 0 {
		return i + len(end) - 1
	}
	return len(s)
}

type parser struct {
	text  []byte
	found []Setting

	at, line, start int // an offset, the lines before it, and where its line starts
}

// place is the line and the column of an offset, which grows from call to call.
func (p *parser) place(off int) (line, column int) {
	between := p.text[p.at:off]
	if n := bytes.Count(between, []byte("\n")); n > 0 {
		p.line += n
		p.start = p.at + bytes.LastIndexByte(between, '\n') + 1
	}
	p.at = off
	return p.line + 1, off - p.start + 1
}

// object appends the members. An object that is not a known key is a group.
func (p *parser) object(prefix string, o *hujson.Object) {
	for i := range o.Members {
		m := &o.Members[i]
		name := prefix + m.Name.Value.(hujson.Literal).String()
		if to, ok := aliases[name]; ok {
			name = to
		}
		group, isObject := m.Value.Value.(*hujson.Object)
		if _, known := keys[name]; isObject && !known {
			p.object(name+".", group)
			continue
		}
		p.setting(name, m)
	}
}

func (p *parser) setting(name string, m *hujson.ObjectMember) {
	plain := m.Value.Clone()
	plain.Standardize()
	plain.BeforeExtra, plain.AfterExtra = nil, nil
	s := newSetting(name, compact(plain.Pack()))
	s.Unknown = s.Unknown || keys[name].environment
	s.Line, s.Column = p.place(m.Name.StartOffset)
	p.found = append(p.found, s)
}

func newSetting(name string, v value) Setting {
	s := Setting{Key: name, Value: string(v), from: v}
	k, known := keys[name]
	if s.Unknown = !known; known {
		s.Err = k.check(v)
	}
	return s
}

// FromEnvironment returns the settings of CUFILE_ variables; get returns a variable's
// value.
func FromEnvironment(get func(string) string) (all []Setting) {
	for name, k := range keys {
		if k.variable == "" {
			continue
		}
		if v := get(k.variable); v != "" {
			s := newSetting(name, fromVariable(v, k.kind))
			s.Variable = k.variable
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Setting) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
	return all
}
