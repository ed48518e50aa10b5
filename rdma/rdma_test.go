package rdma

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
)

// The numbers are those of libibverbs: programs and other providers depend on them.
func TestNumbersAreThoseOfVerbs(t *testing.T) {
	for name, c := range map[string]struct{ got, want uint32 }{
		"REM_ACCESS_ERR": {uint32(RemAccessErr), 10}, "WR_FLUSH_ERR": {uint32(FlushErr), 5}, "RETRY_EXC_ERR": {uint32(RetryExcErr), 12},
		"RNR_RETRY_EXC_ERR": {uint32(RNRRetryExcErr), 13}, "GENERAL_ERR": {uint32(GeneralErr), 21},
		"INIT": {uint32(ToInit), 0x39}, "RTR": {uint32(ToRTR), 0x129181 | 0x8000}, "RTS": {uint32(ToRTS), 0x12e01},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", name, c.got, c.want)
		}
	}
	if len(statusNames) != 22 || RemAccessErr.String() != "remote access error" || Status(99).String() != "unknown status 99" {
		t.Error("names of statuses")
	}
}

func TestCheckStep(t *testing.T) {
	for _, c := range []struct {
		from, to State
		mask     Mask
		ok       bool
	}{
		{Reset, Init, ToInit, true},
		{Reset, Init, MaskState, false},
		{Reset, RTR, ToRTR, false},
		{Init, RTR, ToRTR, true},
		{Init, RTR, ToRTR &^ MaskAV, false},
		{RTR, RTS, ToRTS, true},
		{RTS, Init, ToInit, false},
		{ErrState, RTS, ToRTS, false},
		{ErrState, Reset, MaskState, true},
		{Reset, ErrState, MaskState, true},
		{RTS, RTS, MaskAccess, true},
		{RTS, Reset, MaskAccess, true}, // without MaskState the state stays
	} {
		if err := CheckStep(c.from, c.to, c.mask); (err == nil) != c.ok || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v to %v with %#x: %v", c.from, c.to, uint32(c.mask), err)
		}
	}
}

func TestAccess(t *testing.T) {
	if err := RemoteWrite.Check(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("remote write alone: %v", err)
	}
	if s := (LocalWrite | RemoteRead | 1<<30).String(); s != "local write|remote read|0x40000000" {
		t.Error(s)
	}
}

// A completion error names the request, the status with its number, and what to do.
func TestCompletionError(t *testing.T) {
	err := WC{ID: 7, Status: RemAccessErr, QPNum: 0x12}.Err()
	if !errors.Is(err, RemAccessErr) || !strings.Contains(err.Error(), "work request 7 on QP 0x12: remote access error (status 10) (fix: ") {
		t.Error(err)
	}
	if (WC{}).Err() != nil {
		t.Error("a success is an error")
	}
}

// The exchange of addresses survives a round trip, and rejects what is none.
func TestInfo(t *testing.T) {
	i := QPInfo{QPNum: 0x123456, PSN: 0xabcdef, LID: 4711, MTU: 5, RDAtomic: 16, GID: GID{15: 1}}
	b := appendInfo(nil, i, []byte("keys"))
	if len(b) != infoSize+4 {
		t.Fatalf("%d bytes", len(b))
	}
	got, data, err := readInfo(bytes.NewReader(b))
	if err != nil || got != i || string(data) != "keys" {
		t.Errorf("%+v, %q, %v", got, data, err)
	}
	for name, change := range map[string]func(b []byte){
		"magic": func(b []byte) { b[0] = 'X' },
		"QPN":   func(b []byte) { b[8] = 1 },
		"PSN":   func(b []byte) { b[12] = 1 },
		"MTU":   func(b []byte) { b[18] = 6 },
		"data":  func(b []byte) { b[36] = 1 },
	} {
		bad := bytes.Clone(b)
		change(bad)
		if _, _, err := readInfo(bytes.NewReader(bad)); err == nil {
			t.Errorf("a wrong %s was accepted", name)
		}
	}
}

// Establish ends when the peer goes away.
func TestExchangeWithNobody(t *testing.T) {
	x, y := net.Pipe()
	defer x.Close()
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := exchange(x, QPInfo{}, nil); err == nil {
		t.Error("no error")
	}
}

func FuzzInfo(f *testing.F) {
	f.Add(appendInfo(nil, QPInfo{MTU: 5}, []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		i, data, err := readInfo(bytes.NewReader(b))
		if err == nil && !bytes.Equal(appendInfo(nil, i, data), b[:infoSize+len(data)]) {
			t.Errorf("%+v is not what was read", i)
		}
	})
}
