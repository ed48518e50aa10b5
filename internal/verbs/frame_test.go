package verbs

import (
	"testing"
	"time"

	"github.com/culvert-io/culvert/rdma"
)

func TestHeaderRoundTrip(t *testing.T) {
	h := header{kind: request(rdma.OpWriteImm), flags: flagSolicited, size: 77, msn: 1 << 40, addr: 1 << 63, rkey: 0xdeadbeef, imm: 5, a: 6, b: 7}
	var b [headerSize]byte
	h.put(&b)
	got, err := parse(&b)
	if err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestHeaderRejects(t *testing.T) {
	for name, h := range map[string]header{
		"kind 0":               {},
		"unknown request":      {kind: request(rdma.OpFetchAdd) + 1},
		"unknown answer":       {kind: kindRNR + 1},
		"flags":                {kind: kindAck, flags: 0x80},
		"too large":            {kind: request(rdma.OpWrite), size: maxMessage + 1},
		"atomic of 4 bytes":    {kind: request(rdma.OpFetchAdd), size: 4},
		"acknowledged data":    {kind: kindAck, size: 1},
		"large part of a read": {kind: kindRead, size: readPart + 1},
	} {
		var b [headerSize]byte
		h.put(&b)
		if _, err := parse(&b); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestRNRTime(t *testing.T) {
	for code, want := range map[uint8]time.Duration{1: 10, 2: 20, 3: 30, 4: 40, 5: 60, 12: 640, 13: 960, 31: 491520, 0: 655360} {
		if got := rnrTime(code); got != want*time.Microsecond {
			t.Errorf("code %d: %v, want %v µs", code, got, int64(want))
		}
	}
}
