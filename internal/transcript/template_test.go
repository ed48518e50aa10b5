package transcript

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	tmpl, err := ParseTemplate("0102<a><a+0x10>ff<c:4>")
	if err != nil {
		t.Fatal(err)
	}
	if tmpl.Len() != 23 || strings.Join(tmpl.Names(), " ") != "a a c" {
		t.Errorf("%d bytes, names %v", tmpl.Len(), tmpl.Names())
	}
	b := Bindings{"a": 0x1122334455667788, "c": 0xdeadbeef}
	got, err := tmpl.Fill(b)
	want, _ := hex.DecodeString("010288776655443322119877665544332211ffefbeadde")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("filled %x, %v", got, err)
	}
	learned := Bindings{}
	if err := tmpl.Match(got, learned, nil); err != nil || learned["a"] != b["a"] || learned["c"] != b["c"] {
		t.Errorf("learned %x, %v", learned, err)
	}
	_, err = tmpl.Fill(Bindings{"a": 1})
	if u, ok := errors.AsType[*Unbound](err); !ok || u.Name != "c" {
		t.Errorf("fill without <c>: %v", err)
	}
}

func TestMismatchBindsNothing(t *testing.T) {
	tmpl, _ := ParseTemplate("<a>ff")
	for _, got := range []string{"0000000000000000fe", "00", "0000000000000000ff00"} {
		raw, _ := hex.DecodeString(got)
		b := Bindings{}
		if err := tmpl.Match(raw, b, nil); err == nil || len(b) != 0 {
			t.Errorf("%s: %v, bound %v", got, err, b)
		}
	}
	// The second occurrence must agree with what the first has said.
	twice, _ := ParseTemplate("<a><a+0x1>")
	raw := make([]byte, 16)
	raw[8] = 2
	if err := twice.Match(raw, Bindings{}, nil); err == nil {
		t.Error("<a> and <a+1> were taken for 0 and 2")
	}
	if err := twice.Match(raw, Bindings{}, map[string]bool{"a": true}); err != nil {
		t.Errorf("volatile: %v", err)
	}
}

func TestBadTemplates(t *testing.T) {
	for _, s := range []string{"0", "0g", "<", "<>", "<a", "<a:5>", "<a+>", "<a+x>", "01<a b>", "<a:>", "0<a>0"} {
		if tmpl, err := ParseTemplate(s); err == nil {
			t.Errorf("%q was read as %d bytes", s, tmpl.Len())
		}
	}
}

func TestText(t *testing.T) {
	b := Bindings{"x": 0x1000}
	if err := matchText("at <x+0x10>: <y>, <n> us\n<b", "at 0x1010: 0xff, 1.5 us\n<b", b, volatile); err != nil || b["y"] != 0xff {
		t.Errorf("%v, bound %v", err, b)
	}
	for _, got := range []string{"at 0x1011: 0xff, 1.5 us\n<b", "", "at 0x1010: 0xff, 1.5 us\n<b "} {
		if err := matchText("at <x+0x10>: <y>, <n> us\n<b", got, b, volatile); err == nil {
			t.Errorf("%q matches", got)
		}
	}
}

// What a template matches, filling it gives back; and no text is a panic.
func FuzzTemplate(f *testing.F) {
	f.Add("0102<a><a+0x10>ff<c:4>", []byte("0123456789abcdef0123456"))
	f.Add("<handle0>0400000000000000", []byte("0123456789abcdef"))
	f.Add("<", []byte{})
	f.Fuzz(func(t *testing.T, s string, got []byte) {
		tmpl, err := ParseTemplate(s)
		if err != nil {
			return
		}
		b := Bindings{}
		if tmpl.Match(got, b, nil) != nil {
			return
		}
		back, err := tmpl.Fill(b)
		if err != nil || !bytes.Equal(back, got) {
			t.Errorf("%q matches %x and fills to %x, %v", s, got, back, err)
		}
	})
}
