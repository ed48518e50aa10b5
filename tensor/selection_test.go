package tensor

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseSelection(t *testing.T) {
	tests := []struct {
		in   string
		want Selection
	}{
		{"", Selection{}},
		{"tp=4,rank=1", Selection{Tensor: Rank{1, 4}}},
		{"rank=1,tp=4", Selection{Tensor: Rank{1, 4}}},
		{"tp=2", Selection{Tensor: Rank{eachDevice, 2}}},
		{"pp=2,stage=0,tp=8,rank=7", Selection{Tensor: Rank{7, 8}, Pipeline: Rank{0, 2}}},
		{"ep=4,eprank=3", Selection{Expert: Rank{3, 4}}},
		{"layers=3,experts=0-8", Selection{Layers: Range{3, 4}, Experts: Range{0, 8}}},
	}
	for _, tt := range tests {
		got, err := ParseSelection(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, diff)
		}
	}
	for in, says := range map[string]string{
		"tp":              "want a number from 1",
		"tp=0":            "want a number from 1",
		"tp=x":            "want a number from 1",
		"tp=4,rank=4":     "rank=4 must be less than 4",
		"rank=0":          "rank=0 must be less than 0",
		"tp=2,rank=-1":    "want a number from 0",
		"layers=4-4":      "want a number from 5",
		"layers=a":        "want a number",
		"gpus=3":          "unknown key",
		"tp=999999999999": "want a number",
	} {
		if _, err := ParseSelection(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error %v, want %q", in, err, says)
		}
	}
}

func TestParseRules(t *testing.T) {
	for in, want := range map[string]splitRule{
		"*.w=1":      {pattern: "*.w", dim: 1},
		"*.w=0/3":    {pattern: "*.w", parts: 3},
		"a=b=whole":  {pattern: "a=b", whole: true},
		"[ab].x*=10": {pattern: "[ab].x*", dim: 10},
	} {
		got, err := parseRules([]string{in})
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		got[0].match = nil
		if diff := cmp.Diff(want, got[0], cmp.AllowUnexported(splitRule{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
	for _, in := range []string{"", "x", "=1", "x=", "x=-1", "x=1/0", "x=1/", "x=all", "[=1"} {
		if sel, err := ParseSelection("", in); err == nil {
			t.Errorf("%q: accepted as %+v", in, sel)
		}
	}
}

func TestSpread(t *testing.T) {
	each := func(of int) Rank { return Rank{eachDevice, of} }
	tests := []struct {
		name    string
		sel     Selection
		devices []int
		want    []Selection
	}{
		{"all to one", Selection{}, []int{3}, []Selection{{Device: 3}}},
		{"a rank to one", Selection{Tensor: Rank{1, 4}}, []int{0}, []Selection{{Device: 0, Tensor: Rank{1, 4}}}},
		{"a rank to each", Selection{Tensor: each(2)}, []int{1, 0}, []Selection{{Device: 1, Tensor: Rank{0, 2}}, {Device: 0, Tensor: Rank{1, 2}}}},
		{"layers shared by default", Selection{}, []int{0, 1}, []Selection{{Device: 0, Pipeline: Rank{0, 2}}, {Device: 1, Pipeline: Rank{1, 2}}}},
		{"replicas", Selection{Replicas: 2}, []int{0, 1}, []Selection{{Device: 0, Replicas: 2}, {Device: 1, Replicas: 2}}},
		{
			"replicas of ranks",
			Selection{Tensor: each(2), Replicas: 2},
			[]int{0, 1, 2, 3},
			[]Selection{
				{Device: 0, Tensor: Rank{0, 2}, Replicas: 2},
				{Device: 1, Tensor: Rank{1, 2}, Replicas: 2},
				{Device: 2, Tensor: Rank{0, 2}, Replicas: 2},
				{Device: 3, Tensor: Rank{1, 2}, Replicas: 2},
			},
		},
		{
			"a grid",
			Selection{Tensor: each(2), Pipeline: each(2)},
			[]int{0, 1, 2, 3},
			[]Selection{
				{Device: 0, Tensor: Rank{0, 2}, Pipeline: Rank{0, 2}},
				{Device: 1, Tensor: Rank{1, 2}, Pipeline: Rank{0, 2}},
				{Device: 2, Tensor: Rank{0, 2}, Pipeline: Rank{1, 2}},
				{Device: 3, Tensor: Rank{1, 2}, Pipeline: Rank{1, 2}},
			},
		},
	}
	for _, tt := range tests {
		got, err := tt.sel.Spread(tt.devices)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, bad := range []struct {
		sel     Selection
		devices []int
	}{
		{Selection{}, nil},
		{Selection{Tensor: each(4)}, []int{0}},
		{Selection{Tensor: each(2)}, []int{0, 1, 2}},
		{Selection{Layers: Range{0, 1}}, []int{0, 1}},
		{Selection{Replicas: 2}, []int{0}},
		{Selection{Replicas: 2}, []int{0, 1, 2}},
	} {
		if got, err := bad.sel.Spread(bad.devices); err == nil {
			t.Errorf("%+v on %v: %+v", bad.sel, bad.devices, got)
		}
	}
}

func TestSelectionErrors(t *testing.T) {
	m := modelOf(t, map[string][]Info{"f": {{Name: "a.0.w", Dtype: U8, Shape: []int64{2}}}}, "f")
	for says, sel := range map[string]Selection{
		"pattern":             {Only: []string{"["}},
		"rule ":               {Rules: []string{"[=1"}},
		"rank 2 of 2":         {Tensor: Rank{2, 2}},
		"rank -1 of 2":        {Tensor: Rank{eachDevice, 2}},
		"pipeline stage and":  {Pipeline: Rank{0, 2}, Layers: Range{0, 1}},
		"expert rank and":     {Expert: Rank{0, 2}, Experts: Range{0, 1}},
		"no tensor of model ": {Only: []string{"b*"}},
	} {
		_, err := NewPlan(m, []Selection{sel}, nil)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v, want %q", err, says)
		}
	}
	for _, o := range []PlanOptions{{MaxRead: 100}, {MaxRead: -1}} {
		if _, err := NewPlan(m, []Selection{{}}, &o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]int{
		"model.layers.12.mlp.experts.3.w": 12, "transformer.h.0.attn": 0, "encoder.block.4.layer.1.x": 4,
		"lm_head.weight": noLayer, "w1.weight": noLayer, "a.1b.2": 2, "a.99999999999999999999.3": 3,
	} {
		if got := layerOf(name); got != want {
			t.Errorf("layerOf(%s) = %d, want %d", name, got, want)
		}
	}
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "a.b/c.d", true},
		{"*.weight", "a/b.weight", true},
		{"a?b", "a/b", true},
		{"*.bias", "a.weight", false},
		{"layers.[0-3].*", "layers.2.x.y", true},
		{"*a/b*", "xa/by", true},
		{"*a/b*", "xa.by", false},
		{"*.a*b", "x.azb", true},
		{"**", "", true},
		{"", "", true},
		{"", "a", false},
	} {
		match, err := compile(tt.pattern)
		if err != nil || match(tt.name) != tt.want {
			t.Errorf("%s on %s: want %v, %v", tt.pattern, tt.name, tt.want, err)
		}
	}
}

// TestAnyOf: names and patterns match as path.Match says.
func TestAnyOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune(`ab*?[]\`)), 0, 4, -1), 0, 3).Draw(t, "patterns")
		name := rapid.StringOfN(rapid.RuneFrom([]rune(`ab*?[]\`)), 0, 3, -1).Draw(t, "name")
		want, broken := len(patterns) == 0, false
		for _, p := range patterns {
			ok, err := path.Match(p, name)
			want, broken = want || ok, broken || err != nil
		}
		match, err := AnyOf(patterns)
		if broken != (err != nil) {
			t.Fatalf("%q: %v", patterns, err)
		}
		if err == nil && match(name) != want {
			t.Errorf("%q matches %q: %t, want %t", patterns, name, !want, want)
		}
	})
}
