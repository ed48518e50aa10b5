package nvmf

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/abi/nvme"
)

// TestKeyedSGL compares a descriptor with the bytes that Linux's
// nvme_rdma_map_sg_single makes: put_unaligned_le24, put_unaligned_le32 and the type.
func TestKeyedSGL(t *testing.T) {
	var c nvme.Command
	if err := Keyed(0x1122334455667788, 0x030201, 0xa0b0c0d0).Put(&c); err != nil {
		t.Fatal(err)
	}
	const want = "8877665544332211" + "010203" + "d0c0b0a0" + "40"
	if got := hex.EncodeToString(Encode(&c)[24:40]); got != want || c.Flags != FLAGS_SGL {
		t.Errorf("flags %#x, descriptor %s, want %s", c.Flags, got, want)
	}
	if got := SGLOf(&c); got != Keyed(0x1122334455667788, 0x030201, 0xa0b0c0d0) {
		t.Errorf("read back %+v", got)
	}
	if err := Keyed(0, MaxKeyed+1, 0).Put(&c); err == nil {
		t.Error("a length of 25 bits was accepted")
	}
	in := InCapsule(0, 4096)
	if err := in.Put(&c); err != nil || SGLOf(&c) != in {
		t.Errorf("in-capsule: %v, %+v", err, SGLOf(&c))
	}
}

func TestPrivateData(t *testing.T) {
	req := RDMARequest{QID: 1, HRQSize: 0x80, HSQSize: 0x7f, CNTLID: 3}
	b := Encode(&req)
	if want := "0000" + "0100" + "8000" + "7f00" + "0300" + strings.Repeat("00", 22); hex.EncodeToString(b) != want {
		t.Errorf("%x, want %s", b, want)
	}
	got, err := Decode[RDMARequest](b)
	if err != nil || got != req {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Decode[RDMARequest](b[:31]); err == nil || !strings.Contains(err.Error(), "31 bytes must be at least 32") {
		t.Errorf("31 bytes: %v", err)
	}
	for s, want := range map[RDMAStatus]string{RDMA_CM_NO_RSC: "no resources", 0: "unknown reason 0", 99: "unknown reason 99"} {
		if s.String() != want {
			t.Errorf("%d is %q", s, s)
		}
	}
}

func TestNames(t *testing.T) {
	b, err := NQN(DiscoveryNQN)
	if err != nil || Name(&b) != DiscoveryNQN {
		t.Errorf("%q, %v", Name(&b), err)
	}
	if _, err := NQN(strings.Repeat("n", 224)); err == nil {
		t.Error("a name of 224 bytes was accepted")
	}
	var full [256]byte
	copy(full[:], bytes.Repeat([]byte("x"), 256))
	if len(Name(&full)) != 256 {
		t.Error("a name without a terminator ends early")
	}
}
