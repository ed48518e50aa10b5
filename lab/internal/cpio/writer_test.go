package cpio

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
func TestBytes(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	w.Dir("d", 0o755)
	w.File("d/f", 0o644, 5, strings.NewReader("hello"))
	if err := w.Close(); err != nil {
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

type entry struct {
	Name string
	Mode uint32
	Body string
}

// read parses an archive by the format's description alone.
func read(b []byte) ([]entry, error) {
	var es []entry
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
		es = append(es, entry{name, uint32(field(1)), string(b[start : start+field(6)])})
		off = align(start + field(6))
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) entry {
			return entry{
				Name: rapid.StringMatching(`[a-z][a-z./]{0,12}`).Draw(t, "name"),
				Mode: typeRegular | rapid.Uint32Range(0, 0o7777).Draw(t, "mode"),
				Body: string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "body")),
			}
		})).Draw(t, "entries")
		var b bytes.Buffer
		w := NewWriter(&b)
		for _, e := range want {
			w.File(e.Name, e.Mode, int64(len(e.Body)), strings.NewReader(e.Body))
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := read(b.Bytes())
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
func TestOtherReader(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs busybox (package busybox-static)")
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	w.Dir("dir", 0o755)
	w.File("dir/file", 0o600, 3, strings.NewReader("abc"))
	w.Symlink("link", "dir/file")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(busybox, "cpio", "-t")
	cmd.Stdin = &b
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(out); got != "dir\ndir/file\nlink\n" {
		t.Errorf("busybox lists %q", got)
	}
}

func TestErrors(t *testing.T) {
	for _, name := range []string{"", "/abs", "a\x00b", trailer} {
		if err := NewWriter(io.Discard).Dir(name, 0o755); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
	if err := NewWriter(io.Discard).File("big", 0o644, 1<<32, strings.NewReader("")); err == nil {
		t.Error("a file of 4 GiB was accepted")
	}
	w := NewWriter(io.Discard)
	if err := w.File("short", 0o644, 4, strings.NewReader("abc")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short file: %v", err)
	}
	if err := w.Close(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Close forgot the error: %v", err)
	}
}
