package tensor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Rank is one of Of that share a model. The zero Rank has all of it.
type Rank struct {
	Index int // -1: [Selection.Spread] assigns one to each GPU
	Of    int
}

// eachDevice is the Index of a Rank that is not assigned yet.
const eachDevice = -1

// A Range is a range of numbers without To. The zero Range is everything.
type Range struct{ From, To int }

func (r Range) all() bool { return r == Range{} }

// A Selection is the part of a model that goes to one GPU. A tensor must satisfy
// all its fields; the zero Selection is all of the model on GPU 0.
type Selection struct {
	Device   int
	Only     []string // patterns, of which a name must match one
	Tensor   Rank     // tensor parallelism: slices of tensors
	Pipeline Rank     // pipeline parallelism: a share of the layers
	Expert   Rank     // expert parallelism: a share of each layer's experts
	Replicas int      // data parallelism: so many GPUs get the same, for [Selection.Spread]
	Layers   Range    // layers by number, instead of Pipeline
	Experts  Range    // experts by number, instead of Expert
	// Rules say how Tensor splits the tensors that match a pattern:
	// PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole. Usual names are split as in
	// Megatron-LM, tensors without a rule are kept whole.
	Rules []string
}

// ParseSelection reads the syntax of the command line, such as "tp=4,rank=1",
// "pp=2", "ep=8,eprank=0", "dp=4", "layers=0-16" or "experts=0-8". A group without its
// rank is left to [Selection.Spread]. It checks the rules and adds them.
func ParseSelection(s string, rules ...string) (Selection, error) {
	sel := Selection{Rules: rules}
	ranks := map[string]int{}
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
		case "dp":
			sel.Replicas, err = parseCount(value, 1)
		case "rank", "stage", "eprank":
			ranks[key], err = parseCount(value, 0)
		case "layers":
			sel.Layers, err = parseRange(value)
		case "experts":
			sel.Experts, err = parseRange(value)
		default:
			err = errors.New("unknown key (keys: tp, rank, pp, stage, ep, eprank, dp, layers, experts)")
		}
		if err != nil {
			return Selection{}, fmt.Errorf("plan %q: %s: %w", s, field, err)
		}
	}
	for key, r := range map[string]*Rank{"rank": &sel.Tensor, "stage": &sel.Pipeline, "eprank": &sel.Expert} {
		n, ok := ranks[key]
		if ok && n >= r.Of {
			return Selection{}, fmt.Errorf("plan %q: %s=%d must be less than %d", s, key, n, r.Of)
		}
		if ok {
			r.Index = n
		}
	}
	_, err := parseRules(rules)
	return sel, err
}

func parseGroup(s string) (Rank, error) {
	n, err := parseCount(s, 1)
	return Rank{eachDevice, n}, err
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

// Spread assigns the parts of a selection to GPUs. It counts through the groups
// without a rank, tensor parallelism fastest and replicas last; there must be as many
// parts as GPUs. Without such a group, several GPUs share the layers as pipeline stages.
func (s Selection) Spread(devices []int) ([]Selection, error) {
	if len(devices) == 0 {
		return nil, errors.New("no GPU to load to")
	}
	parts := max(s.Replicas, 1)
	for _, r := range []Rank{s.Tensor, s.Expert, s.Pipeline} {
		if r.Index == eachDevice {
			parts *= r.Of
		}
	}
	if parts == 1 && len(devices) > 1 && s.Pipeline == (Rank{}) && s.Layers.all() {
		s.Pipeline, parts = Rank{eachDevice, len(devices)}, len(devices)
	}
	if parts != len(devices) {
		return nil, fmt.Errorf("plan has %d parts for %d GPUs (fix: set a rank, or name one GPU per part)", parts, len(devices))
	}
	list := make([]Selection, len(devices))
	for i, dev := range devices {
		t := s
		t.Device = dev
		left := i
		for _, r := range []*Rank{&t.Tensor, &t.Expert, &t.Pipeline} {
			if r.Index == eachDevice {
				r.Index, left = left%r.Of, left/r.Of
			}
		}
		list[i] = t
	}
	return list, nil
}

func (s *Selection) check() error {
	for _, r := range []Rank{s.Tensor, s.Pipeline, s.Expert} {
		if r != (Rank{}) && (r.Of < 1 || r.Index < 0 || r.Index >= r.Of) {
			return fmt.Errorf("rank %d of %d", r.Index, r.Of)
		}
	}
	if s.Pipeline.Of > 1 && !s.Layers.all() {
		return errors.New("a pipeline stage and a range of layers are mutually exclusive")
	}
	if s.Expert.Of > 1 && !s.Experts.all() {
		return errors.New("an expert rank and a range of experts are mutually exclusive")
	}
	return nil
}

// AnyOf returns a test whether a name matches one of the patterns; without
// patterns all names do. "*" also matches dots and slashes.
func AnyOf(patterns []string) (func(name string) bool, error) {
	names, tests := map[string]bool{}, []func(string) bool{}
	for _, p := range patterns {
		if name, ok := literal(p); ok {
			names[name] = true // callers may name every tensor of a large model
			continue
		}
		t, err := compile(p)
		if err != nil {
			return nil, err
		}
		tests = append(tests, t)
	}
	return func(name string) bool {
		if names[name] {
			return true
		}
		for _, t := range tests {
			if t(name) {
				return true
			}
		}
		return len(patterns) == 0
	}, nil
}

// literal returns the only name that a pattern matches, if there is one: it has no
// wildcards but those behind a backslash.
func literal(pattern string) (name string, ok bool) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		return pattern, true
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?', '[':
			return "", false
		case '\\':
			if i++; i == len(pattern) {
				return "", false // compile rejects it
			}
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}
