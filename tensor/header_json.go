package tensor

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads the JSON that a header may contain: objects, arrays, strings and
// unsigned integers. encoding/json does not fit: it takes the last of two equal
// keys, turns broken escapes into U+FFFD and reads to any depth. Here the caller
// drives the descent, and what it does not ask for is an error. The text must be
// valid UTF-8.
type scanner struct {
	b []byte
	i int
}

// A syntaxError is a place where the JSON is not what the header needs.
type syntaxError struct {
	at  int
	msg string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d of the header", e.msg, e.at) }

func (s *scanner) errorf(format string, args ...any) error {
	return &syntaxError{s.i, fmt.Sprintf(format, args...)}
}

// peek returns the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return s.b[s.i]
		}
	}
	return 0
}

// found names what is at a place where something else was expected.
func (s *scanner) found() string {
	if s.peek(); s.i == len(s.b) {
		return "the end"
	}
	return strconv.QuoteRune(rune(s.b[s.i]))
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c {
		return s.errorf("want %q, found %s", c, s.found())
	}
	s.i++
	return nil
}

// end checks that only white space is left.
func (s *scanner) end() error {
	if s.peek(); s.i != len(s.b) {
		return s.errorf("want the end, found %s", s.found())
	}
	return nil
}

// object calls field for each key; field reads the value and must not keep the key.
func (s *scanner) object(field func(key []byte) error) error {
	return s.list('{', '}', func() error {
		key, err := s.text()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		return field(key)
	})
}

// array calls elem for each element; elem reads it.
func (s *scanner) array(elem func() error) error { return s.list('[', ']', elem) }

func (s *scanner) list(open, end byte, elem func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.peek() == end {
		s.i++
		return nil
	}
	for {
		if err := elem(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case end:
			s.i++
			return nil
		default:
			return s.errorf("want ',' or %q, found %s", end, s.found())
		}
	}
}

// uint reads an integer as JSON writes it: no sign, fraction, exponent or leading
// zero.
func (s *scanner) uint() (uint64, error) {
	s.peek()
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	digits := s.b[start:s.i]
	next := s.peek()
	switch {
	case len(digits) == 0:
		return 0, s.errorf("want an unsigned integer, found %s", s.found())
	case digits[0] == '0' && len(digits) > 1:
		return 0, &syntaxError{start, "a number starts with 0"}
	case next == '.' || next == 'e' || next == 'E':
		return 0, &syntaxError{start, "want an unsigned integer, found a fraction or an exponent"}
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0, &syntaxError{start, fmt.Sprintf("the integer %s does not fit into 64 bits", digits)}
	}
	return n, nil
}

// text reads a string. It is part of the header unless it has escapes.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	var out []byte // up to the last escape
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			rest := s.b[start:s.i]
			s.i++
			if out == nil {
				return rest, nil
			}
			return append(out, rest...), nil
		case c == '\\':
			out = append(out, s.b[start:s.i]...)
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			out, start = utf8.AppendRune(out, r), s.i
		case c < ' ':
			return nil, s.errorf("a control character inside a string")
		default:
			s.i++
		}
	}
	return nil, s.errorf("a string without end")
}

var escapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func (s *scanner) escape() (rune, error) {
	if s.i+1 >= len(s.b) {
		return 0, s.errorf("a string without end")
	}
	if r, ok := escapes[s.b[s.i+1]]; ok {
		s.i += 2
		return r, nil
	}
	r, ok := s.hex()
	if !ok {
		return 0, s.errorf("an unknown escape")
	}
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	second, _ := s.hex()
	if r = utf16.DecodeRune(r, second); r == utf8.RuneError {
		return 0, s.errorf("half a surrogate pair")
	}
	return r, nil
}

// hex reads \uXXXX, and moves on only if it is there.
func (s *scanner) hex() (rune, bool) {
	if len(s.b)-s.i < 6 || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
		return 0, false
	}
	// ParseUint accepts underscores in base 0 only, and signs never.
	n, err := strconv.ParseUint(string(s.b[s.i+2:s.i+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	s.i += 6
	return rune(n), true
}
