package transcript

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// A Template is bytes of which some are not known in advance: addresses,
// handles, clocks. Placeholders stand for them: <name> or <name+0x1000> for 8
// bytes, <name:4> for 4.
type Template struct{ parts []part }

// A part is literal bytes, or a placeholder when it has a name.
type part struct {
	lit  []byte
	name string
	add  uint64
	size int
}

// ParseTemplate reads hexadecimal digits with placeholders between them.
func ParseTemplate(s string) (Template, error) {
	var t Template
	for s != "" {
		digits, rest, found := strings.Cut(s, "<")
		if digits != "" {
			lit, err := hex.DecodeString(digits)
			if err != nil {
				return Template{}, fmt.Errorf("bytes %.20q: %w", digits, err)
			}
			t.parts = append(t.parts, part{lit: lit})
		}
		if !found {
			break
		}
		var inside string
		if inside, s, found = strings.Cut(rest, ">"); !found {
			return Template{}, fmt.Errorf("placeholder %.20q has no end", rest)
		}
		p, err := parsePlaceholder(inside)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, p)
	}
	return t, nil
}

// parsePlaceholder parses the text between < and >.
func parsePlaceholder(s string) (part, error) {
	p := part{size: 8}
	name, size, sized := strings.Cut(s, ":")
	if sized {
		if size != "4" && size != "8" {
			return part{}, fmt.Errorf("placeholder <%s>: size %q", s, size)
		}
		p.size = int(size[0] - '0')
	}
	name, add, added := strings.Cut(name, "+")
	if added {
		var err error
		if p.add, err = strconv.ParseUint(add, 0, 64); err != nil {
			return part{}, fmt.Errorf("placeholder <%s>: %w", s, err)
		}
	}
	if p.name = name; name == "" || strings.ContainsAny(name, "<> ") {
		return part{}, fmt.Errorf("placeholder <%s> has no name", s)
	}
	return p, nil
}

// Len is the number of bytes.
func (t Template) Len() (n int) {
	for _, p := range t.parts {
		n += len(p.lit) + p.size
	}
	return n
}

// Names are the placeholders in order.
func (t Template) Names() (names []string) {
	for _, p := range t.parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// Bindings are the values of placeholders that are known.
type Bindings map[string]uint64

// An Unbound is a placeholder without a value.
type Unbound struct{ Name string }

func (e *Unbound) Error() string { return fmt.Sprintf("<%s> has no value", e.Name) }

// Fill replaces placeholders by their values.
func (t Template) Fill(b Bindings) ([]byte, error) {
	out := make([]byte, 0, t.Len())
	for _, p := range t.parts {
		if p.name == "" {
			out = append(out, p.lit...)
			continue
		}
		v, ok := b[p.name]
		if !ok {
			return nil, &Unbound{p.name}
		}
		out = append(out, number(v+p.add, p.size)...)
	}
	return out, nil
}

func number(v uint64, size int) []byte {
	return binary.LittleEndian.AppendUint64(nil, v)[:size]
}

// Match compares. If everything else matches, it binds placeholders without a
// value. Volatile ones match anything.
func (t Template) Match(got []byte, b Bindings, volatile map[string]bool) error {
	if len(got) != t.Len() {
		return fmt.Errorf("%d bytes, want %d", len(got), t.Len())
	}
	fresh := Bindings{}
	off := 0
	for _, p := range t.parts {
		n := len(p.lit) + p.size
		have := got[off : off+n]
		switch v, bound := lookup(p.name, b, fresh); {
		case p.name == "":
			if !bytes.Equal(have, p.lit) {
				return fmt.Errorf("bytes from %d are %x, want %x", off, have, p.lit)
			}
		case volatile[p.name]:
		case bound:
			if want := number(v+p.add, p.size); !bytes.Equal(have, want) {
				return fmt.Errorf("<%s> at %d is %x, want %x", p.name, off, have, want)
			}
		default:
			var wide [8]byte
			copy(wide[:], have)
			fresh[p.name] = binary.LittleEndian.Uint64(wide[:]) - p.add
		}
		off += n
	}
	maps.Copy(b, fresh)
	return nil
}

func lookup(name string, maps ...Bindings) (v uint64, ok bool) {
	for _, m := range maps {
		if v, ok = m[name]; ok {
			return v, true
		}
	}
	return 0, false
}
