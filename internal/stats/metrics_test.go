package stats

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden metrics")

func TestMetrics(t *testing.T) {
	s := &Snapshot{PID: 7, UID: 1000, Command: "a \"b\"\\c\nd\xff\x1b]0;x\x07", Alive: true, Routes: routes}
	s.Totals.Ops[0][2], s.Totals.Bytes[0][2] = 3, 12288
	s.Totals.Ops[1][1], s.Totals.Bytes[1][1] = 1, 10
	s.Totals.Host, s.Totals.Errors, s.Totals.Time = 12288, 2, 1500*time.Millisecond
	var b strings.Builder
	if err := WriteMetrics(&b, []*Snapshot{s, {PID: 8, Routes: routes}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`culvert_transferred_bytes_total{pid="7",uid="1000",command="a \"b\"\\c\nd` + "\uFFFD\uFFFD]0;x\uFFFD" + `",direction="read",route="ring"} 12288` + "\n",
		`culvert_transfers_total{pid="7",uid="1000",command="a \"b\"\\c\nd` + "\uFFFD\uFFFD]0;x\uFFFD" + `",direction="write",route="vendor"} 1` + "\n",
		`culvert_transfer_seconds_total{pid="7"`, "} 1.5\n", `culvert_process_running{pid="8",uid="0",command=""} 0`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %s in\n%s", want, &b)
		}
	}
	// make lint passes this file to Prometheus' linter.
	const path = "testdata/metrics.prom"
	if *update {
		_ = os.WriteFile(path, []byte(b.String()), 0o644)
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != b.String() {
		t.Errorf("differs from %s (%v):\n%s", path, err, &b)
	}
}

// Two processes are listed, the running one first; a description is read with its
// file.
func TestList(t *testing.T) {
	p := newProcess(t)
	f := p.Attach("/data/model")
	p.Describe(f, Description{GPU: 3, Ceiling: 5e10, Declined: "nvfs: kernel module: missing"})
	f.Add(0, &Transfer{Route: 2, Bytes: 100, Time: time.Millisecond})
	var found *Snapshot
	for _, s := range List(false) {
		if s.Alive && len(s.Files) > 0 && s.Files[0].Name == "/data/model" {
			found = s
		}
	}
	if found == nil {
		t.Fatal("the process is not listed")
	}
	if got, want := found.Files[0].Description, (Description{3, 5e10, "nvfs: kernel module: missing"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Detach(f)
	for i := range slots { // the slot is given to another file, which has no description
		p.Detach(p.Attach(fmt.Sprint("/data/other", i)))
	}
	for _, f := range read(t, p.id).Files {
		if f.GPU != -1 || f.Declined != "" {
			t.Errorf("%+v", f)
		}
	}
}
