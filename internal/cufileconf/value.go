package cufileconf

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A value is JSON without comments and space.
type value string

func compact(text []byte) value {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return value(text)
	}
	return value(b.String())
}

func decode[T any](v value) (t T, ok bool) {
	if v == "null" {
		return t, false
	}
	return t, json.Unmarshal([]byte(v), &t) == nil
}

// boolean takes 1 and 0, too: variables have them.
func (v value) boolean() (b, ok bool) {
	switch v {
	case "1":
		return true, true
	case "0":
		return false, true
	}
	return decode[bool](v)
}

func (v value) number() (uint64, bool)    { return decode[uint64](v) }
func (v value) text() (string, bool)      { return decode[string](v) }
func (v value) numbers() ([]uint64, bool) { return decode[[]uint64](v) }
func (v value) texts() ([]string, bool)   { return decode[[]string](v) }

// fromVariable is the text of an environment variable as a value of a kind.
func fromVariable(s string, k kind) value {
	if k == text || k == other {
		b, _ := json.Marshal(s)
		return value(b)
	}
	return value(strings.ToLower(strings.TrimSpace(s)))
}
