package route

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func exampleReceipt() Receipt {
	r := Receipt{Dir: Read, Bytes: 4 << 20, Host: ByteCount{4<<20 - 100, Counted}, Head: 60, Tail: 40, Holes: 4096, Retries: 1, Time: 100 * time.Microsecond, Machine: RealMachine}
	r.By[Ring], r.By[Bar] = 4<<20-100, 100
	r.Declined[NVFS] = &Decline{NVFS, "kernel module", "nvidia-fs is not loaded", "modprobe nvidia-fs"}
	r.Declined[P2PDMA] = &Decline{P2PDMA, "kernel", "no symbol", ""}
	r.Route = r.By.Most()
	return r
}

func TestReceiptLine(t *testing.T) {
	r := exampleReceipt()
	want := "read route=ring bytes=4194304 host_bytes=4194204(counted) time=100µs rate=41.94GB/s machine=real by=bar:100,ring:4194204 ragged=60+40 holes=4096 retries=1 declined=nvfs:kernel-module,p2pdma:kernel"
	if got := r.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestReceiptJSON(t *testing.T) {
	r := exampleReceipt()
	text, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"direction": "read", "route": "ring", "machine": "real", "bytes": 4194304.0,
		"bytes_by_route": map[string]any{"ring": 4194204.0, "bar": 100.0},
		"host_bytes":     map[string]any{"bytes": 4194204.0, "evidence": "counted"},
		"ragged_head":    60.0, "ragged_tail": 40.0, "hole_bytes": 4096.0, "retries": 1.0, "seconds": 0.0001, "gb_per_second": 41.94304,
		"declined": []any{
			map[string]any{"route": "nvfs", "test": "kernel module", "evidence": "nvidia-fs is not loaded", "fix": "modprobe nvidia-fs"},
			map[string]any{"route": "p2pdma", "test": "kernel", "evidence": "no symbol"},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestReceiptRegistration: an adapter's receipt has the way to GPU memory, and a sum keeps it.
func TestReceiptRegistration(t *testing.T) {
	r := Receipt{Provider: "soft", Registration: "dma-buf, built-in order"}
	var sum Receipt
	sum.Add(&r)
	sum.Add(&Receipt{})
	if got, want := sum.String(), ` provider=soft registration="dma-buf, built-in order"`; !strings.Contains(got, want) {
		t.Errorf("no %s in %s", want, got)
	}
	if text, err := json.Marshal(sum); err != nil || !strings.Contains(string(text), `"registration":"dma-buf, built-in order"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestReceiptIsAValue: transfers return one, and it prints and encodes as such.
func TestReceiptIsAValue(t *testing.T) {
	r := exampleReceipt()
	if got, want := fmt.Sprint(r), r.String(); got != want {
		t.Errorf("printed %s, want %s", got, want)
	}
	type holder struct{ Receipt Receipt }
	got, err := json.Marshal(holder{r})
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(&holder{r})
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) || !strings.Contains(string(got), `"bytes_by_route"`) {
		t.Errorf("encoded\n%s, want\n%s", got, want)
	}
}

func TestReceiptSum(t *testing.T) {
	var sum Receipt
	a, b := exampleReceipt(), exampleReceipt()
	b.Host.Evidence, b.Machine = Inferred, SoftwareMachine
	sum.Add(&a)
	sum.Add(&b)
	if sum.Bytes != 8<<20 || sum.Host != (ByteCount{2 * (4<<20 - 100), Inferred}) || sum.By[Bar] != 200 || sum.Holes != 8192 || sum.Route != Ring || sum.Time != 200*time.Microsecond {
		t.Errorf("the sum is %v", &sum)
	}
	if sum.Add(&a); sum.Machine != SoftwareMachine {
		t.Errorf("the sum of real and software transfers passes for %v", sum.Machine)
	}
	if len(sum.Declined.List()) != 2 {
		t.Errorf("the sum lost reasons: %v", sum.Declined.List())
	}
}

func TestPicture(t *testing.T) {
	r := Receipt{Dir: Write, Bytes: 5 << 10}
	r.By[Host] = 5 << 10
	want := "gpu:0 ══ 5.0 KiB ══▶ [host memory] ══ 5.0 KiB ══▶ out.bin\n"
	if got := r.Diagram("out.bin", "gpu:0"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Machine = SoftwareMachine
	if got, want := r.Diagram("out.bin", "gpu:0"), strings.TrimSuffix(want, "\n")+" (software machine)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for id := Vendor; id < numIDs; id++ {
		if len(hops[id]) == 0 {
			t.Errorf("nothing says what bytes pass on the route %v", id)
		}
	}
}

func TestParseIsTheInverseOfString(t *testing.T) {
	for id := Vendor; id < numIDs; id++ {
		if got, err := Parse(id.String()); err != nil || got != id {
			t.Errorf("Parse(%q) = %v, %v", id, got, err)
		}
	}
	if _, err := Parse("teleport"); err == nil || !strings.Contains(err.Error(), "vendor, nvfs") {
		t.Errorf("Parse of nonsense: %v", err)
	}
}

// A name that others chose stays in its line and does nothing else.
func TestNamesStayInLine(t *testing.T) {
	r := Receipt{Route: Host, Bytes: 1}
	r.By[Host] = 1
	if got := r.Diagram("two\nlines", "gpu:0"); strings.Count(got, "\n") != 1 {
		t.Errorf("a picture of %d lines:\n%s", strings.Count(got, "\n"), got)
	}
}

func TestNamesOfNothing(t *testing.T) {
	for want, got := range map[string]string{
		"ID(200)": ID(200).String(), "Dir(9)": Dir(9).String(), "Evidence(9)": Evidence(9).String(), "Machine(9)": Machine(9).String(),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
