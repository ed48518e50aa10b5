package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The bytes are spelt out once, so that writer and reader below cannot be
// wrong together.
func TestCpioBytes(t *testing.T) {
	var b bytes.Buffer
	w := &cpioWriter{w: &b}
	w.dir("d", 0o755)
	w.file("d/f", 0o644, 5, strings.NewReader("hello"))
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	zero := func(n int) string { return strings.Repeat("00000000", n) }
	want := "070701" + "00000001" + "000041ed" + zero(2) + "00000002" + zero(1) + "00000000" + zero(4) + "00000002" + zero(1) + "d\x00" +
		"070701" + "00000002" + "000081a4" + zero(2) + "00000001" + zero(1) + "00000005" + zero(4) + "00000004" + zero(1) + "d/f\x00" + "\x00\x00" + "hello\x00\x00\x00" +
		"070701" + "00000000" + "00000000" + zero(2) + "00000001" + zero(1) + "00000000" + zero(4) + "0000000b" + zero(1) + "TRAILER!!!\x00" + "\x00\x00\x00"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

type cpioEntry struct {
	Name string
	Mode uint32
	Body string
}

// read parses an archive by the format's description alone.
func readCpio(b []byte) ([]cpioEntry, error) {
	var es []cpioEntry
	align := func(n int) int { return (n + 3) &^ 3 }
	for off := 0; ; {
		h := b[off:]
		if len(h) < 110 || string(h[:6]) != "070701" {
			return nil, fmt.Errorf("no header at %d", off)
		}
		field := func(i int) int {
			v, err := strconv.ParseUint(string(h[6+8*i:14+8*i]), 16, 32)
			if err != nil {
				panic(err)
			}
			return int(v)
		}
		name := string(h[110 : 110+field(11)-1])
		start := off + align(110+field(11))
		if name == "TRAILER!!!" {
			return es, nil
		}
		es = append(es, cpioEntry{name, uint32(field(1)), string(b[start : start+field(6)])})
		off = align(start + field(6))
	}
}

func TestCpioRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) cpioEntry {
			return cpioEntry{
				Name: rapid.StringMatching(`[a-z][a-z./]{0,12}`).Draw(t, "name"),
				Mode: typeRegular | rapid.Uint32Range(0, 0o7777).Draw(t, "mode"),
				Body: string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")),
			}
		})).Draw(t, "entries")
		var b bytes.Buffer
		w := &cpioWriter{w: &b}
		for _, e := range want {
			w.file(e.Name, e.Mode, int64(len(e.Body)), strings.NewReader(e.Body))
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		got, err := readCpio(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 && len(got) == 0 {
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("entries (-want +got):\n%s", diff)
		}
	})
}

// The reader of somebody else must agree.
func TestCpioOtherReader(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox (package busybox-static)")
	}
	var b bytes.Buffer
	w := &cpioWriter{w: &b}
	w.dir("dir", 0o755)
	w.file("dir/file", 0o600, 3, strings.NewReader("abc"))
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(busybox, "cpio", "-t")
	cmd.Stdin = &b
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != "dir\ndir/file\n" {
		t.Errorf("busybox lists %q", got)
	}
}

func TestCpioErrors(t *testing.T) {
	for _, name := range []string{"", "/abs", "a\x00b", cpioTrailer} {
		w := &cpioWriter{w: io.Discard}
		if w.dir(name, 0o755); w.close() == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	w := &cpioWriter{w: io.Discard}
	if w.file("big", 0o644, 1<<32, strings.NewReader("")); w.close() == nil {
		t.Error("a file of 4 GiB was accepted")
	}
	w = &cpioWriter{w: io.Discard}
	w.file("short", 0o644, 4, strings.NewReader("abc"))
	w.file("next", 0o644, 3, strings.NewReader("abc"))
	if err := w.close(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short file: %v", err)
	}
}
