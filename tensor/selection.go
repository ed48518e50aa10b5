package tensor

import (
	"fmt"
	"strconv"
	"strings"
)

// A Rank is one of several that share a model out. The zero Rank has it all.
// An Index of [EachDevice] means that [Spread] gives each device its own.
type Rank struct{ Index, Of int }

// EachDevice is the Index of a Rank that is still to be given out.
const EachDevice = -1

// A Range is a range of numbers, To not included. The zero Range is everything.
type Range struct{ From, To int }

func (r Range) all() bool { return r == Range{} }

// A Selection says which part of a model is wanted. The zero Selection is all
// of it. Its parts narrow each other.
type Selection struct {
	Only     []string // globs of names; a tensor must match one
	Tensor   Rank     // tensor parallelism: slices of tensors, by Rules
	Pipeline Rank     // pipeline parallelism: a stage's share of the layers
	Expert   Rank     // expert parallelism: a share of each layer's experts
	Layers   Range    // layers by number, instead of Pipeline
	Experts  Range    // experts by number, instead of Expert
	Rules    []SplitRule
}

// A Target is a GPU and what goes there.
type Target struct {
	Device int
	Selection
}

// ParseSelection reads the form that the command line uses, such as
// "tp=4,rank=1", "pp=2", "ep=8,eprank=0", "layers=0-16", "experts=0-8". A
// group without its rank is given out among the devices by [Spread].
func ParseSelection(s string) (Selection, error) {
	sel := Selection{}
	ranks := map[string]*int{}
	for field := range strings.SplitSeq(s, ",") {
		if field == "" {
			continue
		}
		key, value, _ := strings.Cut(field, "=")
		var err error
		switch key {
		case "tp":
			sel.Tensor, err = parseGroup(value)
		case "pp":
			sel.Pipeline, err = parseGroup(value)
		case "ep":
			sel.Expert, err = parseGroup(value)
		case "rank", "stage", "eprank":
			var n int
			n, err = parseCount(value, 0)
			ranks[key] = &n
		case "layers":
			sel.Layers, err = parseRange(value)
		case "experts":
			sel.Experts, err = parseRange(value)
		default:
			err = fmt.Errorf("unknown key: the keys are tp, rank, pp, stage, ep, eprank, layers, experts")
		}
		if err != nil {
			return Selection{}, fmt.Errorf("plan %q: %s: %w", s, field, err)
		}
	}
	for key, r := range map[string]*Rank{"rank": &sel.Tensor, "stage": &sel.Pipeline, "eprank": &sel.Expert} {
		n := ranks[key]
		if n == nil {
			continue
		}
		if *n >= r.Of {
			return Selection{}, fmt.Errorf("plan %q: %s=%d is not one of %d", s, key, *n, r.Of)
		}
		r.Index = *n
	}
	return sel, nil
}

func parseGroup(s string) (Rank, error) {
	n, err := parseCount(s, 1)
	return Rank{EachDevice, n}, err
}

func parseCount(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 1<<20 {
		return 0, fmt.Errorf("want a number from %d", least)
	}
	return n, nil
}

func parseRange(s string) (Range, error) {
	from, to, ok := strings.Cut(s, "-")
	a, err := parseCount(from, 0)
	if err != nil {
		return Range{}, err
	}
	if !ok {
		return Range{a, a + 1}, nil
	}
	b, err := parseCount(to, a+1)
	return Range{a, b}, err
}

// Spread gives the parts of a selection out to devices. Groups whose rank is
// open are counted through, tensor parallelism fastest; together they must be
// as many as the devices. Where no rank is open, several devices share the
// layers as pipeline stages.
func Spread(sel Selection, devices []int) ([]Target, error) {
	if len(devices) == 0 {
		return nil, fmt.Errorf("no device to load to")
	}
	open := 1
	for _, r := range []Rank{sel.Tensor, sel.Expert, sel.Pipeline} {
		if r.Index == EachDevice {
			open *= r.Of
		}
	}
	if open == 1 && len(devices) > 1 && sel.Pipeline == (Rank{}) && sel.Layers.all() {
		sel.Pipeline, open = Rank{EachDevice, len(devices)}, len(devices)
	}
	if open != len(devices) {
		return nil, fmt.Errorf("the plan has %d parts for %d devices: name the rank that is wanted, or as many devices", open, len(devices))
	}
	targets := make([]Target, len(devices))
	for i, dev := range devices {
		t := Target{dev, sel}
		left := i
		for _, r := range []*Rank{&t.Tensor, &t.Expert, &t.Pipeline} {
			if r.Index == EachDevice {
				r.Index, left = left%r.Of, left/r.Of
			}
		}
		targets[i] = t
	}
	return targets, nil
}

func (s *Selection) check() error {
	for _, r := range []Rank{s.Tensor, s.Pipeline, s.Expert} {
		if r != (Rank{}) && (r.Of < 1 || r.Index < 0 || r.Index >= r.Of) {
			return fmt.Errorf("rank %d of %d", r.Index, r.Of)
		}
	}
	if s.Pipeline.Of > 1 && !s.Layers.all() {
		return fmt.Errorf("both a pipeline stage and a range of layers")
	}
	if s.Expert.Of > 1 && !s.Experts.all() {
		return fmt.Errorf("both an expert rank and a range of experts")
	}
	return nil
}

// AnyOf makes a test of globs: a name passes if it matches one of them, or if
// there is none. "*" also matches dots and slashes.
func AnyOf(globs []string) (func(name string) bool, error) {
	var tests []func(string) bool
	for _, g := range globs {
		t, err := compile(g)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return func(name string) bool {
		for _, t := range tests {
			if t(name) {
				return true
			}
		}
		return len(tests) == 0
	}, nil
}
