package tensor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
)

// A splitRule says how tensor parallelism cuts the tensors whose names match.
type splitRule struct {
	pattern string
	match   func(name string) bool
	// dim is the dimension that the ranks share. Tensors that lack it, or have one
	// element there, are kept whole, as scales and biases are.
	dim   int
	parts int64 // blocks side by side along dim; 0 is 1
	// uneven gives the last ranks less where the dimension is not a multiple of
	// the ranks, as torch.chunk does: vocabularies rarely are.
	uneven bool
	whole  bool   // every rank has all of it
	reject string // why no cut is right without more knowledge
}

const fusedQKV = "query, key and value are one tensor whose parts differ between models (fix: add a rule for it, or keep it whole)"

// megatronRules cut the usual transformer weights, [out, in] as in torch.nn.Linear,
// as Megatron-LM does: what feeds a nonlinearity by its outputs, what follows one
// by its inputs, vocabularies by words.
var megatronRules = sync.OnceValue(func() (rules []splitRule) {
	add := func(r splitRule, suffixes []string, modules ...string) {
		for _, m := range modules {
			for _, s := range suffixes {
				r.pattern = "*" + m + s
				r.match, _ = compile(r.pattern)
				rules = append(rules, r)
			}
		}
	}
	weights := []string{".weight", ".weight_scale*"}
	add(splitRule{reject: fusedQKV}, []string{".weight", ".bias"}, ".qkv_proj", ".query_key_value", ".c_attn", ".Wqkv", ".in_proj", ".qkv")
	add(splitRule{dim: 0, parts: 2}, append(weights, ".bias"), ".gate_up_proj")
	add(splitRule{dim: 0}, append(weights, ".bias"),
		".q_proj", ".k_proj", ".v_proj", ".q_b_proj", ".kv_b_proj", ".gate_proj", ".up_proj",
		".w1", ".w3", ".fc1", ".dense_h_to_4h")
	add(splitRule{dim: 1}, weights,
		".o_proj", ".out_proj", ".attention.dense", ".self_attention.dense", ".down_proj",
		".w2", ".fc2", ".dense_4h_to_h")
	add(splitRule{dim: 0, uneven: true}, weights,
		"embed_tokens", "lm_head", "wte", "word_embeddings", "tok_embeddings", "embed_in", "embed_out")
	return rules
})

// parseRules reads rules of the form PATTERN=DIM, PATTERN=DIM/PARTS or
// PATTERN=whole.
func parseRules(texts []string) ([]splitRule, error) {
	var rules []splitRule
	for _, s := range texts {
		r, ok := parseRule(s)
		if !ok {
			return nil, fmt.Errorf("rule %q: want PATTERN=DIM, PATTERN=DIM/PARTS or PATTERN=whole", s)
		}
		var err error
		if r.match, err = compile(r.pattern); err != nil {
			return nil, fmt.Errorf("rule %q: %w", s, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parseRule(s string) (r splitRule, ok bool) {
	i := strings.LastIndexByte(s, '=')
	if i < 1 {
		return r, false
	}
	r.pattern = s[:i]
	if s[i+1:] == "whole" {
		r.whole = true
		return r, true
	}
	dim, parts, cut := strings.Cut(s[i+1:], "/")
	var err error
	if r.dim, err = strconv.Atoi(dim); err != nil || r.dim < 0 {
		return r, false
	}
	if cut {
		r.parts, err = strconv.ParseInt(parts, 10, 64)
	}
	return r, !cut || err == nil && r.parts >= 1
}

// compile turns a pattern into a test. Slashes in names have no meaning. Usual
// forms, a literal behind or between stars, have a fast path: some models have a
// hundred thousand tensors, and each is compared with all rules.
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

// split returns the rank's part of a tensor by the first rule that matches; nil is
// all of it.
func split(rules []splitRule, rank Rank, info Info) (*Cut, error) {
	if rank.Of <= 1 {
		return nil, nil
	}
	for i := range rules {
		if rules[i].match(info.Name) {
			return rules[i].cut(rank, info)
		}
	}
	return nil, nil
}

func (r *splitRule) cut(rank Rank, info Info) (*Cut, error) {
	if r.reject != "" {
		return nil, fmt.Errorf("tensor %q: %s", info.Name, r.reject)
	}
	if r.whole || r.dim >= len(info.Shape) || info.Shape[r.dim] == 1 {
		return nil, nil
	}
	parts := max(r.parts, 1)
	n := info.Shape[r.dim]
	if n%parts != 0 {
		return nil, fmt.Errorf("tensor %q: dimension %d of %d does not consist of %d equal blocks", info.Name, r.dim, n, parts)
	}
	n /= parts
	of, index := int64(rank.Of), int64(rank.Index)
	if n%of != 0 && !r.uneven {
		return nil, fmt.Errorf("tensor %q: dimension %d of %d cannot be shared by %d ranks (fix: add a rule for it, or keep it whole)", info.Name, r.dim, n, of)
	}
	each := (n + of - 1) / of
	return &Cut{Dim: r.dim, From: min(index*each, n), To: min((index+1)*each, n), Parts: r.parts}, nil
}
