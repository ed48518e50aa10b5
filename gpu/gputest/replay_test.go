package gputest

import (
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	hardware := Record{
		Outcomes: map[string]string{"copy/in": "CUDA_SUCCESS", "copy/out": "CUDA_ERROR_INVALID_VALUE", "pair/open": "CUDA_SUCCESS"},
	}
	with := func(change func(*Record)) Record {
		r := Record{Outcomes: map[string]string{}, Skipped: map[string]string{}}
		for k, v := range hardware.Outcomes {
			r.Outcomes[k] = v
		}
		change(&r)
		return r
	}
	all := []Difference{{"copy/*", "a reason"}}
	for name, c := range map[string]struct {
		got      Record
		accepted []Difference
		want     []string // the beginning of each complaint
	}{
		"same":      {got: hardware},
		"different": {with(func(r *Record) { r.Outcomes["copy/in"] = "X" }), nil, []string{"copy/in: was CUDA_SUCCESS, is X"}},
		"accepted":  {with(func(r *Record) { r.Outcomes["copy/in"] = "X" }), all, nil},
		"exactly":   {with(func(r *Record) { r.Outcomes["copy/in"] = "X" }), []Difference{{"copy/in", "r"}}, nil},
		"other": {
			with(func(r *Record) { r.Outcomes["copy/in"] = "X" }),
			[]Difference{{"copy/out", "r"}},
			[]string{"copy/in: was", "copy/out: accepted as different (r), but does not differ"},
		},
		"lost":    {with(func(r *Record) { delete(r.Outcomes, "copy/in") }), nil, []string{"copy/in: was CUDA_SUCCESS, is no longer tried"}},
		"new":     {with(func(r *Record) { r.Outcomes["copy/new"] = "X" }), nil, []string{"copy/new: is X, was not recorded"}},
		"skipped": {with(func(r *Record) { delete(r.Outcomes, "pair/open"); r.Skipped["pair"] = "needs two" }), nil, nil},
		"unused":  {hardware, all, []string{"copy/*: accepted as different"}},
		"another suite": {
			with(func(r *Record) {
				r.Suite = "another"
				delete(r.Outcomes, "copy/in")
				r.Outcomes["copy/new"], r.Outcomes["copy/out"] = "X", "Y"
			}), nil, []string{"copy/out: was CUDA_ERROR_INVALID_VALUE, is Y"},
		},
	} {
		got := compare(c.got, hardware, c.accepted)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
			}
		}
	}
	skipped := Record{Skipped: map[string]string{"copy": "needs a reason"}}
	if got := compare(Record{Outcomes: map[string]string{"copy/in": "X"}}, skipped, nil); len(got) != 0 {
		t.Errorf("steps of a case that the record skipped: %q", got)
	}
}

func TestCasesHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range append(cases(), lostCases...) {
		if seen[c.name] || strings.Contains(c.name, "/") || c.run == nil {
			t.Errorf("case %q is there twice, has a slash in its name, or nothing to run", c.name)
		}
		seen[c.name] = true
	}
	if len(suiteHash()) != 16 {
		t.Errorf("the hash of the suite is %q", suiteHash())
	}
}
