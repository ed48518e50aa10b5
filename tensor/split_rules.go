package tensor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// A SplitRule says how tensor parallelism cuts the tensors whose names match.
type SplitRule struct {
	Match string // a glob; "*" also matches dots and slashes
	// Dim is the dimension that the ranks share out. Tensors that do not have
	// it, or have one element there, are kept whole, as scales and biases are.
	Dim   int
	Parts int64 // blocks side by side along Dim; 0 is 1
	// Ragged lets the last ranks have less, as torch.chunk does, where the
	// dimension is not a multiple of the ranks: vocabularies rarely are.
	Ragged bool
	Whole  bool // every rank has all of it
	// Refuse says why no cut is right without more knowledge.
	Refuse string
}

const fusedQKV = "query, key and value are one tensor whose parts differ between models: add a rule for it, or keep it whole"

// MegatronRules cut the usual transformer weights, [out, in] as torch.nn.Linear
// has them, the way Megatron-LM does: what feeds a nonlinearity by its outputs,
// what follows one by its inputs, vocabularies by words. What no rule matches
// is kept whole.
func MegatronRules() []SplitRule {
	var rules []SplitRule
	add := func(r SplitRule, suffixes []string, modules ...string) {
		for _, m := range modules {
			for _, s := range suffixes {
				r.Match = "*" + m + s
				rules = append(rules, r)
			}
		}
	}
	weights := []string{".weight", ".weight_scale*"}
	add(SplitRule{Refuse: fusedQKV}, []string{".weight", ".bias"}, ".qkv_proj", ".query_key_value", ".c_attn", ".Wqkv", ".in_proj", ".qkv")
	add(SplitRule{Dim: 0, Parts: 2}, append(weights, ".bias"), ".gate_up_proj")
	add(SplitRule{Dim: 0}, append(weights, ".bias"),
		".q_proj", ".k_proj", ".v_proj", ".q_b_proj", ".kv_b_proj", ".gate_proj", ".up_proj",
		".w1", ".w3", ".fc1", ".dense_h_to_4h")
	add(SplitRule{Dim: 1}, weights,
		".o_proj", ".out_proj", ".attention.dense", ".self_attention.dense", ".down_proj",
		".w2", ".fc2", ".dense_4h_to_h")
	add(SplitRule{Dim: 0, Ragged: true}, weights,
		"embed_tokens", "lm_head", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embed_out")
	return rules
}

// ParseSplitRule reads PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole.
func ParseSplitRule(s string) (SplitRule, error) {
	bad := func() (SplitRule, error) {
		return SplitRule{}, fmt.Errorf("rule %q: want PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole", s)
	}
	i := strings.LastIndexByte(s, '=')
	if i < 1 {
		return bad()
	}
	r := SplitRule{Match: s[:i]}
	if _, err := compile(r.Match); err != nil {
		return SplitRule{}, fmt.Errorf("rule %q: %w", s, err)
	}
	if s[i+1:] == "whole" {
		r.Whole = true
		return r, nil
	}
	dim, parts, cut := strings.Cut(s[i+1:], "/")
	var err error
	if r.Dim, err = strconv.Atoi(dim); err != nil || r.Dim < 0 {
		return bad()
	}
	if cut {
		if r.Parts, err = strconv.ParseInt(parts, 10, 64); err != nil || r.Parts < 1 {
			return bad()
		}
	}
	return r, nil
}

// compile turns a glob into a test. Slashes in names mean nothing. The usual
// forms, a literal behind or between stars, are worth a way of their own: models
// of a hundred thousand tensors exist, and each is held against all rules.
func compile(pattern string) (func(name string) bool, error) {
	flat := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	p := flat(pattern)
	if _, err := path.Match(p, ""); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	if rest, ok := strings.CutPrefix(p, "*"); ok {
		if !strings.ContainsAny(rest, `*?[\`) {
			return func(name string) bool { return strings.HasSuffix(flat(name), rest) }, nil
		}
		if inner, ok := strings.CutSuffix(rest, "*"); ok && !strings.ContainsAny(inner, `*?[\`) {
			return func(name string) bool { return strings.Contains(flat(name), inner) }, nil
		}
	}
	return func(name string) bool {
		ok, err := path.Match(p, flat(name))
		return err == nil && ok
	}, nil
}

// A splitter cuts tensors for one rank of a tensor-parallel group.
type splitter struct {
	rank  Rank
	rules []SplitRule
	match []func(string) bool
}

func newSplitter(rank Rank, rules []SplitRule) (*splitter, error) {
	s := &splitter{rank: rank, rules: rules}
	for _, r := range rules {
		m, err := compile(r.Match)
		if err != nil {
			return nil, fmt.Errorf("rule: %w", err)
		}
		s.match = append(s.match, m)
	}
	return s, nil
}

// cut is what the rank takes of a tensor; nil where it takes all.
func (s *splitter) cut(info Info) (*Cut, error) {
	if s.rank.Of <= 1 {
		return nil, nil
	}
	for i, match := range s.match {
		if match(info.Name) {
			return s.rules[i].cut(s.rank, info)
		}
	}
	return nil, nil
}

func (r SplitRule) cut(rank Rank, info Info) (*Cut, error) {
	if r.Refuse != "" {
		return nil, fmt.Errorf("tensor %q: %s", info.Name, r.Refuse)
	}
	if r.Whole || r.Dim >= len(info.Shape) || info.Shape[r.Dim] == 1 {
		return nil, nil
	}
	parts := max(r.Parts, 1)
	n := info.Shape[r.Dim]
	if n%parts != 0 {
		return nil, fmt.Errorf("tensor %q: dimension %d of %d does not hold %d equal blocks", info.Name, r.Dim, n, parts)
	}
	n /= parts
	of, index := int64(rank.Of), int64(rank.Index)
	if n%of != 0 && !r.Ragged {
		return nil, fmt.Errorf("tensor %q: dimension %d of %d cannot be shared by %d ranks: add a rule for it, or keep it whole", info.Name, r.Dim, n, of)
	}
	each := (n + of - 1) / of
	return &Cut{Dim: r.Dim, From: min(index*each, n), To: min((index+1)*each, n), Parts: r.Parts}, nil
}
