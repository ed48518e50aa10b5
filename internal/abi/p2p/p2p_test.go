package p2p

import "testing"

func TestCompatible(t *testing.T) {
	for _, tc := range []struct {
		have, want uint32
		ok         bool
	}{
		{0x20000, 0x20000, true},
		{0x20003, 0x20001, true},
		{0x20000, 0x20001, false},
		{0x10003, 0x20000, false},
		{0x30000, 0x20000, false},
	} {
		if got := Compatible(tc.have, tc.want); got != tc.ok {
			t.Errorf("Compatible(%#x, %#x) = %v", tc.have, tc.want, got)
		}
	}
}
