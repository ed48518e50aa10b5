package perftest

import (
	"bytes"
	"strings"
	"testing"
)

var sample = Endpoint{
	LID: 3, OutReads: 0x10, QPN: 0x8d1, PSN: 0xabcdef, Rkey: 0x1a2b3c4d, VAddr: 0x7f1200000000,
	GID: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 1, 15: 10},
}

const (
	short = "0003:0010:0008d1:abcdef:1a2b3c4d:00007f1200000000:00000000\x00"
	long  = "0003:0010:0008d1:abcdef:1a2b3c4d:00007f1200000000:" +
		"00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:01:0a:00000000:\x00"
)

func TestGolden(t *testing.T) {
	if len(short) != Size || len(long) != SizeGID {
		t.Fatalf("%d and %d bytes", len(short), len(long))
	}
	for _, c := range []struct {
		gid  bool
		want string
	}{{false, short}, {true, long}} {
		b, err := sample.Append(nil, c.gid)
		if err != nil || string(b) != c.want {
			t.Errorf("%q, %v\nwant %q", b, err, c.want)
		}
		want := sample
		if !c.gid {
			want.GID = [16]byte{}
		}
		if got, err := Parse([]byte(c.want)); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := (&Endpoint{QPN: 1 << 24}).Append(nil, false); err == nil {
		t.Error("a queue pair of 25 bits was accepted")
	}
}

func TestBad(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "has 0 bytes"},
		{"no NUL", strings.Replace(short, "\x00", "0", 1), "end with a NUL"},
		{"upper case", strings.Replace(short, "abcdef", "ABCDEF", 1), `psn "ABCDEF"`},
		{"sign", strings.Replace(short, "0003", "+003", 1), "lid"},
		{"separator", strings.Replace(short, "0003:", "0003.", 1), "followed by"},
		{"GID", strings.Replace(long, ":c0:", ":cx:", 1), "gid"},
		{"no last colon", strings.Replace(long, ":\x00", "0\x00", 1), "srqn"},
	} {
		if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzParse checks that what is accepted is encoded to the same bytes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(short))
	f.Add([]byte(long))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			return
		}
		if again, err := e.Append(nil, len(b) == SizeGID); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q becomes %q, %v", b, again, err)
		}
	})
}
