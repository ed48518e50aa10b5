package remote

import (
	"bytes"
	"strings"
	"testing"
)

func TestWire(t *testing.T) {
	req := request{Op: opRead, ID: 1, Handle: 2, Off: 1 << 40, Len: 4, Addr: 1 << 63, RKey: 6, Name: "a/b"}
	b, err := readFrame(bytes.NewReader(appendRequest(nil, &req)))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseRequest(b); err != nil || got != req {
		t.Errorf("%+v, %v", got, err)
	}
	rep := reply{ID: 1, Status: Changed, Handle: 3, Len: 4, Tag: 5, CRC: 6, Chunk: 7, Reason: strings.Repeat("r", maxName)}
	if b, err = readFrame(bytes.NewReader(appendReply(nil, &rep))); err != nil {
		t.Fatal(err)
	}
	if got, err := parseReply(b); err != nil || got != rep {
		t.Errorf("%+v, %v", got, err)
	}
	rep.Reason += "more"
	if b = appendReply(nil, &rep); len(b) > 4+maxFrame {
		t.Errorf("a reply has %d bytes", len(b))
	}
	if _, err := readFrame(strings.NewReader("\xff\xff\xff\xff")); err == nil {
		t.Error("a frame of 4 GiB was accepted")
	}
}

// FuzzParse checks that what is accepted is encoded to the same bytes.
func FuzzParse(f *testing.F) {
	f.Add(appendRequest(nil, &request{Op: opOpen, Name: "n"})[4:])
	f.Add(appendReply(nil, &reply{Reason: "r"})[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil && !bytes.Equal(appendRequest(nil, &r)[4:], b) {
			t.Errorf("request %x becomes %+v", b, r)
		}
		if r, err := parseReply(b); err == nil && !bytes.Equal(appendReply(nil, &r)[4:], b) {
			t.Errorf("reply %x becomes %+v", b, r)
		}
	})
}
