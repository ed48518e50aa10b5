package cm

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	abi "github.com/culvert-io/culvert/internal/abi/rdmacm"
	"github.com/culvert-io/culvert/rdma"
)

func TestSockaddr(t *testing.T) {
	s := sockaddr(netip.MustParseAddrPort("10.1.2.3:4420"))
	if binary.NativeEndian.Uint16(s[:]) != 2 || [6]byte(s[2:8]) != [6]byte{4420 >> 8, 4420 & 0xff, 10, 1, 2, 3} {
		t.Errorf("IPv4: % x", s)
	}
	s = sockaddr(netip.MustParseAddrPort("[fe80::1]:1"))
	if binary.NativeEndian.Uint16(s[:]) != 10 || s[3] != 1 || s[8] != 0xfe || s[23] != 1 {
		t.Errorf("IPv6: % x", s)
	}
}

func TestCommand(t *testing.T) {
	b := command(abi.RESOLVE_ROUTE, &abi.ResolveRoute{ID: 7, Timeout: 9}, 3)
	want := []uint16{abi.RESOLVE_ROUTE, 0, 8, 3, 7, 0, 9, 0}
	for i, w := range want {
		if got := binary.NativeEndian.Uint16(b[2*i:]); got != w {
			t.Errorf("word %d is %d, want %d", i, got, w)
		}
	}
	if len(b) != 16 {
		t.Errorf("%d bytes", len(b))
	}
}

func TestAttributes(t *testing.T) {
	got := attributes(&abi.QPAttr{
		State: 2, PathMTU: 5, RQPSN: 1, SQPSN: 2, DestQPN: 3, MaxDestRDAtomic: 4, MinRNRTimer: 5, Timeout: 6, RetryCount: 7, RNRRetry: 8, Port: 1,
		AH: abi.AH{DGID: [16]byte{15: 9}, SGIDIndex: 1, HopLimit: 64, IsGlobal: 1, Port: 1, DLID: 10},
	})
	want := rdma.QPAttr{
		State: rdma.RTR, PathMTU: 5, RQPSN: 1, SQPSN: 2, DestQPN: 3, MaxDestRDAtomic: 4, MinRNRTimer: 5, Timeout: 6, RetryCount: 7, RNRRetry: 8, Port: 1,
		AV: rdma.AV{DGID: rdma.GID{15: 9}, SGIDIndex: 1, HopLimit: 64, Global: true, Port: 1, DLID: 10},
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFailures(t *testing.T) {
	negative := func(e syscall.Errno) uint32 { return uint32(-int32(e)) }
	if err := failure(&abi.Event{Event: abi.EVENT_ADDR_ERROR, Status: negative(syscall.ENODEV)}); !errors.Is(err, syscall.ENODEV) {
		t.Error(err)
	}
	if err := failure(&abi.Event{Event: abi.EVENT_UNREACHABLE}); !errors.Is(err, syscall.EHOSTUNREACH) {
		t.Error(err)
	}
	e := &abi.Event{Event: abi.EVENT_REJECTED, Status: 28, Param: abi.ConnParam{PrivateLen: 2}}
	copy(e.Param.Private[:], "no more")
	r, ok := errors.AsType[*RejectedError](failure(e))
	if !ok || string(r.Private) != "no" || r.Reason != 28 {
		t.Errorf("%+v", r)
	}
	for reason, text := range map[int]string{8: "no service listens", 28: "by the peer", 5: "reason 5"} {
		if s := (&RejectedError{Reason: reason}).Error(); !strings.Contains(s, text) {
			t.Errorf("reason %d: %s", reason, s)
		}
	}
}
