package cufileconf

import (
	"bytes"
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
	if s.Variable != "" {
		return s.Variable
	}
	return fmt.Sprintf("line %d, column %d", s.Line, s.Column)
}

// maxSize is far more than a configuration has; nesting is bounded by it.
const maxSize = 256 << 10

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

type parser struct {
	text  []byte
	found []Setting
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
	before := p.text[:m.Name.StartOffset]
	s.Unknown = s.Unknown || keys[name].environment
	s.Line, s.Column = 1+bytes.Count(before, []byte("\n")), m.Name.StartOffset-bytes.LastIndexByte(before, '\n')
	p.found = append(p.found, s)
}

func newSetting(name string, v value) Setting {
	s := Setting{Key: name, Value: string(v), from: v}
	k, known := keys[name]
	switch {
	case !known:
		s.Unknown = true
	default:
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
