package gdra

import (
	"bytes"
	"strings"
	"testing"
)

var sample = Request{
	Buffer: Buffer{
		Addr: 0x7f1200000000, Size: 0x10000, Rkey: 0x1a2b3c4d, LID: 0, DCTN: 0x8d1, Global: true,
		GID: [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 168, 14: 1, 15: 10},
	},
	Flags: TaskRead,
}

// golden is what the sample's client sends for it on x86-64.
const golden = "\x00\x52\x00" +
	"00007f1200000000:00010000:1a2b3c4d:0000:0008d1:1:00000000000000000000ffffc0a8010a\x00" +
	"\x01\x09\x00" + "00000001\x00"

func TestGoldenRequest(t *testing.T) {
	b, err := sample.Append(nil)
	if err != nil || string(b) != golden || len(b) != 97 || RequestSize != 97 {
		t.Errorf("%d bytes %q, %v\nwant %q", len(b), b, err, golden)
	}
	r, err := ParseRequest([]byte(golden))
	if err != nil || r != sample {
		t.Errorf("%+v, %v", r, err)
	}
	if AckSize != 20 {
		t.Errorf("the acknowledgement has %d bytes", AckSize)
	}
}

func TestBadRequests(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"short", "\x00\x01\x09", "\x01\x09", "has 96 bytes, must have 97"},
		{"type", "\x00\x52", "\x01\x52", "record type is 1, must be 0"},
		{"length", "\x52\x00", "\x53\x00", "record length is 83"},
		{"big endian", "\x52\x00", "\x00\x52", "record length is 20992"},
		{"no NUL", "010a\x00", "010a!", "no terminating NUL"},
		{"upper case", "1a2b3c4d", "1A2B3C4D", "must have 8 hexadecimal digits"},
		{"sign", "00010000:", "+0010000:", "must have 8 hexadecimal digits"},
		{"is_global", ":1:", ":2:", "is_global is 2"},
		{"field borders", "00010000:1a2b3c4d", "0001000:01a2b3c4d", "must have 8"},
		{"GID", "ffffc0a8010a", "ffffc0a8010g", "32 hexadecimal digits"},
		{"task", "00000001\x00", "0000000x\x00", "task"},
	} {
		_, err := ParseRequest([]byte(strings.Replace(golden, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	r := sample
	r.Buffer.DCTN = 1 << 24
	if _, err := r.Append(nil); err == nil {
		t.Error("a DCT number of 25 bits was accepted")
	}
}

// FuzzParseRequest checks that what is accepted is encoded to the same bytes.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(strings.Repeat("0", RequestSize)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			return
		}
		if again, err := r.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%q becomes %q, %v", b, again, err)
		}
	})
}
