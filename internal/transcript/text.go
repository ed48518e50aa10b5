package transcript

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
)

// matchText compares text with placeholders for numbers, which are printed as
// 0x1234. It binds placeholders without a value.
func matchText(want, got string, b Bindings, volatile map[string]bool) error {
	var pattern strings.Builder
	var parts []part
	pattern.WriteString("(?s)^")
	for want != "" {
		lit, rest, found := strings.Cut(want, "<")
		pattern.WriteString(regexp.QuoteMeta(lit))
		if !found {
			break
		}
		inside, after, closed := strings.Cut(rest, ">")
		p, err := parsePlaceholder(inside)
		if !closed || err != nil {
			pattern.WriteString("<") // just a character
			want = rest
			continue
		}
		parts = append(parts, p)
		pattern.WriteString("([0-9a-fx.]+)")
		want = after
	}
	pattern.WriteString("$")
	re, err := regexp.Compile(pattern.String())
	if err != nil {
		return err
	}
	found := re.FindStringSubmatch(got)
	if found == nil {
		return fmt.Errorf("text is %q", got)
	}
	fresh := Bindings{}
	for i, p := range parts {
		if volatile[p.name] {
			continue
		}
		n, err := strconv.ParseUint(found[i+1], 0, 64)
		if err != nil {
			return fmt.Errorf("<%s> in the text is %q", p.name, found[i+1])
		}
		v, bound := lookup(p.name, b, fresh)
		if bound && n != v+p.add {
			return fmt.Errorf("<%s> in the text is %#x, want %#x", p.name, n, v+p.add)
		}
		if !bound {
			fresh[p.name] = n - p.add
		}
	}
	maps.Copy(b, fresh)
	return nil
}

// eval is the value of an expression in the arguments: a number, or a
// placeholder.
func eval(s string, b Bindings) (uint64, error) {
	inside, ok := strings.CutPrefix(s, "<")
	if !ok {
		return strconv.ParseUint(s, 0, 64)
	}
	inside, ok = strings.CutSuffix(inside, ">")
	if !ok {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	p, err := parsePlaceholder(inside)
	if err != nil {
		return 0, err
	}
	v, bound := b[p.name]
	if !bound {
		return 0, &Unbound{p.name}
	}
	return v + p.add, nil
}

// nameIn is the placeholder that a text is, or "".
func nameIn(s string) string {
	inside, open := strings.CutPrefix(s, "<")
	inside, closed := strings.CutSuffix(inside, ">")
	if !open || !closed {
		return ""
	}
	return inside
}
