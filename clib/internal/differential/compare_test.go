package differential_test

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/clib/internal/differential"
	"github.com/culvert-io/culvert/cufile/cufiletest"
)

func record(cases map[string][]string) *cufiletest.Record { return &cufiletest.Record{Cases: cases} }

func TestCompare(t *testing.T) {
	ours := record(map[string][]string{
		"file/closed/disk": {"register-closed: error 5022"},
		"file/sync/disk":   {"register: ok", "read: 5000 bytes", "write: 5000 bytes"},
		"file/dup/disk":    {"register: ok", "register-dup: error 5", "read: 5000 bytes"},
		"calls/version":    {"cuFileGetVersion: 0", "cuFileGetVersion: NULL = 5022"},
	})
	theirs := record(map[string][]string{
		"file/closed/disk": {"register-closed: error 5022"},
		"file/sync/disk":   {"register: ok", "read: 5000 bytes, the memory differs at 5007", "write: error 5"},
		"file/dup/disk":    {"register: ok", "register-dup: error 9"},
		"calls/version":    {"cuFileGetVersion: 0", "died: signal 11"},
	})
	reasons := []differential.Reason{
		{Cases: "file/dup/*", Function: "cuFileHandleRegister", Ours: "error 5", Theirs: "error 9", Why: "better"},
		{Cases: "file/closed/*", Function: "*", Ours: "*", Theirs: "*", Why: "idle"},
	}
	r := differential.Compare(ours, theirs, reasons)
	want := map[string]differential.Tally{
		"cuFileHandleRegister": {Lines: 4, Same: 3},
		"cuFileRead":           {Lines: 1, Same: 1}, // the other has no answer of theirs
		"cuFileWrite":          {Lines: 1},
		"cuFileGetVersion":     {Lines: 2, Same: 1},
	}
	if d := cmp.Diff(want, r.Functions); d != "" {
		t.Error(d)
	}
	if r.Total != (differential.Tally{Lines: 8, Same: 5}) {
		t.Errorf("in all %+v", r.Total)
	}
	var unexpected []string
	for _, l := range r.Unexpected {
		unexpected = append(unexpected, l.String())
	}
	if d := cmp.Diff([]string{
		"calls/version, step 1, cuFileGetVersion: ours NULL = 5022, theirs died: signal 11",
		"file/sync/disk, step 2, cuFileWrite: ours 5000 bytes, theirs error 5",
	}, unexpected); d != "" {
		t.Error(d)
	}
	if len(r.Damage) != 1 || len(r.OurDamage) != 0 || len(r.Idle) != 1 || r.Explained["better"] != 1 {
		t.Errorf("damage %v, ours %v, idle %v, explained %v", r.Damage, r.OurDamage, r.Idle, r.Explained)
	}
}

// A case that only one library ran is a difference.
func TestCompareMissesNothing(t *testing.T) {
	one := record(map[string][]string{"calls/version": {"cuFileGetVersion: 0"}})
	r := differential.Compare(record(nil), one, nil)
	if len(r.Unexpected) != 1 {
		t.Errorf("unexpected: %v", r.Unexpected)
	}
}

func TestWriteCases(t *testing.T) {
	var b bytes.Buffer
	if err := differential.WriteCases(&b); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for sc := bufio.NewScanner(&b); sc.Scan(); {
		kind, _, _ := strings.Cut(sc.Text(), " ")
		kinds[kind]++
		if n := len(strings.Fields(sc.Text())); n != map[string]int{"suite": 2, "case": 7, "hole": 3, "step": 11}[kind] {
			t.Errorf("%d words: %s", n, sc.Text())
		}
	}
	steps := 0
	for _, c := range cufiletest.Cases() {
		steps += len(c.Steps)
	}
	if got, want := fmt.Sprint(kinds["suite"], kinds["case"], kinds["step"]), fmt.Sprint(1, len(cufiletest.Cases()), steps); got != want {
		t.Errorf("lines %s, want %s", got, want)
	}
}
