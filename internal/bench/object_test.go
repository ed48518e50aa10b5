package bench

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object/objecttest"
	_ "github.com/culvert-io/culvert/object"
)

// An object is measured as a file is, with the requests in the receipt, beside programs
// that only read it; each of them has the right bytes.
func TestObject(t *testing.T) {
	const block = 64 << 10
	srv := httptest.NewServer(objecttest.Files{"data": objecttest.Bytes(8*block+5, 1)})
	defer srv.Close()
	drv := openBench(t, 1).drv
	b, err := OpenObjects(t.Context(), drv, 0, []string{srv.URL + "/data?key=secret"}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.NoCeiling = true
	for _, m := range []Method{{}, {Async: true}, {Peer: PeerPread}, {Peer: PeerMemory}} {
		for _, p := range []Pattern{SeqRead, RandRead} {
			w := Workload{Pattern: p, Block: block, Threads: 2, Batch: 2, Kind: gpu.KindDevice, Register: true, Verify: true, Bytes: 8 * block}
			res, err := b.Measure(t.Context(), w, m, "")
			if err != nil {
				t.Fatalf("%+v %s: %v", m, p, err)
			}
			if res.Moved != 8*block || res.Store != srv.URL {
				t.Errorf("%+v %s moved %d bytes from %s", m, p, res.Moved, res.Store)
			}
			if o := res.origin(); m.Peer == "" && (o.Requests < 8 || o.Bytes < 8*block) {
				t.Errorf("%s: origin %s", p, o)
			}
			if line := res.String(); strings.Contains(line, "secret") || !strings.Contains(line, " uncached ") {
				t.Error(line)
			}
		}
	}
	if _, err := b.Measure(t.Context(), Workload{Pattern: SeqRead, Block: 1 << 20, Threads: 1, Batch: 1}, Method{}, ""); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a block that is larger than the object: %v", err)
	}
	if _, err := b.Measure(t.Context(), Workload{Pattern: SeqRead, Block: block, Threads: 1, Batch: 1}, Method{Peer: PeerLibcufile}, ""); err == nil {
		t.Error("libcufile read an object")
	}
}
