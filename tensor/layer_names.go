package tensor

import (
	"math"
	"strconv"
	"strings"
)

// A tensor's purpose is only in its name. The usual names are dotted paths such as
// model.layers.12.mlp.experts.3.up_proj.weight: the first number is the layer, and
// the one behind "experts" is the expert.

// noLayer is the layer of tensors that belong to none, such as embeddings.
const noLayer = -1

func layerOf(name string) int {
	for part := range strings.SplitSeq(name, ".") {
		if n, ok := number(part); ok {
			return n
		}
	}
	return noLayer
}

// expertOf returns the expert that a tensor belongs to. fused means that all
// experts of a layer are one tensor, stacked along its first dimension.
func expertOf(info Info) (expert int, fused, ok bool) {
	_, rest, found := strings.Cut(info.Name, ".experts.")
	if !found {
		return 0, false, false
	}
	part, _, _ := strings.Cut(rest, ".")
	if n, ok := number(part); ok {
		return n, false, true
	}
	return 0, true, len(info.Shape) >= 2
}

// turnOf orders tensors by when a forward pass needs them.
func turnOf(name string) int {
	layer := layerOf(name)
	if layer == noLayer && !isEmbedding(name) {
		return math.MaxInt
	}
	return layer
}

func number(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// layerNames is what the names of a model's tensors say about the model.
type layerNames struct {
	layers, experts int
	head            bool // there is an output head beside the embeddings
}

func examine(tensors []Info) (n layerNames) {
	for _, info := range tensors {
		layer := layerOf(info.Name)
		n.layers = max(n.layers, layer+1)
		n.head = n.head || layer == noLayer && isHead(info.Name)
		switch expert, fused, ok := expertOf(info); {
		case ok && fused:
			n.experts = max(n.experts, int(min(info.Shape[0], 1<<20)))
		case ok:
			n.experts = max(n.experts, expert+1)
		}
	}
	return n
}

func isHead(name string) bool {
	return strings.Contains(name, "lm_head") || strings.Contains(name, "embed_out") || strings.HasPrefix(name, "output.")
}

func isEmbedding(name string) bool {
	return !isHead(name) && (strings.Contains(name, "emb") || strings.Contains(name, "wte") || strings.Contains(name, "wpe"))
}

// share returns the rank's range of n layers or experts.
func share(r Rank, n int) Range { return Range{r.Index * n / r.Of, (r.Index + 1) * n / r.Of} }

// wantsLayer selects by layer. Tensors in front of the layers go with the first,
// tensors behind them with the last. A model without an output head uses its
// embeddings there too.
func (s *Selection) wantsLayer(n layerNames, name string) bool {
	r := s.Layers
	if s.Pipeline.Of > 1 {
		r = share(s.Pipeline, n.layers)
	}
	if r.all() && s.Pipeline.Of <= 1 {
		return true
	}
	if layer := layerOf(name); layer != noLayer {
		return r.From <= layer && layer < r.To
	}
	first, last := r.From == 0, r.To >= n.layers
	if s.Pipeline.Of > 1 { // there may be more stages than layers
		first, last = s.Pipeline.Index == 0, s.Pipeline.Index == s.Pipeline.Of-1
	}
	if isEmbedding(name) {
		return first || last && !n.head
	}
	return last
}

// wantsExpert selects by expert. Of fused experts it returns the cut.
func (s *Selection) wantsExpert(names layerNames, info Info) (want bool, cut *Cut) {
	n, fused, ok := expertOf(info)
	r := s.Experts
	if s.Expert.Of > 1 {
		r = share(s.Expert, names.experts)
	}
	switch {
	case !ok || (s.Expert.Of <= 1 && r.all()):
		return true, nil
	case fused:
		dim := info.Shape[0]
		return true, &Cut{Dim: 0, From: min(int64(r.From), dim), To: min(int64(r.To), dim)}
	default:
		return r.From <= n && n < r.To, nil
	}
}
