package tensor

import (
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A scanner reads the JSON that a header may hold: objects, arrays, strings
// and unsigned integers. encoding/json does not fit: it takes the last of two
// equal keys, turns broken escapes into U+FFFD and reads to any depth. Here the
// caller drives the descent, so what it does not ask for is an error where it
// stands, and nothing is ever skipped. The text must be valid UTF-8.
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

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i == len(s.b) {
		return 0
	}
	return s.b[s.i]
}

// found names what stands where something else was expected.
func (s *scanner) found() string {
	if s.peek() == 0 && s.i == len(s.b) {
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

// end checks that nothing but white space is left.
func (s *scanner) end() error {
	if s.peek() != 0 || s.i != len(s.b) {
		return s.errorf("want the end, found %s", s.found())
	}
	return nil
}

// object calls field for each key, which is only lent; field reads the value.
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

// uint reads a whole number as JSON writes it: no sign, fraction, exponent or
// leading zero.
func (s *scanner) uint() (uint64, error) {
	s.space()
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
	var n uint64
	for _, c := range digits {
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi+carry != 0 {
			return 0, &syntaxError{start, fmt.Sprintf("the integer %s does not fit into 64 bits", digits)}
		}
		n = sum
	}
	return n, nil
}

func (s *scanner) str() (string, error) {
	b, err := s.text()
	return string(b), err
}

// text reads a string. Without escapes in it the result is a part of the input.
func (s *scanner) text() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1], nil
		case c == '\\':
			return s.escaped(append([]byte(nil), s.b[start:s.i]...))
		case c < ' ':
			return nil, s.errorf("a control character inside a string")
		default:
			s.i++
		}
	}
	return nil, s.errorf("a string without end")
}

// escaped reads the rest of a string that has escapes; out is its start.
func (s *scanner) escaped(out []byte) ([]byte, error) {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return out, nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return nil, err
			}
			out = utf8.AppendRune(out, r)
		case c < ' ':
			return nil, s.errorf("a control character inside a string")
		default:
			out = append(out, c)
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

// hex reads \uXXXX and moves on only if it is there.
func (s *scanner) hex() (rune, bool) {
	if len(s.b)-s.i < 6 || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
		return 0, false
	}
	// ParseUint takes underscores in base 0 only, and signs never.
	n, err := strconv.ParseUint(string(s.b[s.i+2:s.i+6]), 16, 16)
	if err != nil {
		return 0, false
	}
	s.i += 6
	return rune(n), true
}
