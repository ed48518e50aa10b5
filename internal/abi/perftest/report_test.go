package perftest

import (
	"encoding/hex"
	"testing"
)

// What ib_write_bw 4.5 sent after 50 writes of 64 KiB.
func TestReport(t *testing.T) {
	const recorded = "0000000000010000" + "0000000000000032" + "4093b6e89da4d0ee" + "4093b6e69b41a222" + "3f94ac0f1e9016f2"
	b, err := hex.DecodeString(recorded)
	if err != nil {
		t.Fatal(err)
	}
	r := ParseReport([ReportSize]byte(b))
	if r.Size != 65536 || r.Iterations != 50 || r.Peak < r.Average || int(r.Average) != 1261 || int(r.Messages*1e6) != 20187 {
		t.Errorf("parsed %+v", r)
	}
	if got := hex.EncodeToString(r.Append(nil)); got != recorded {
		t.Errorf("appended %s, want %s", got, recorded)
	}
}
