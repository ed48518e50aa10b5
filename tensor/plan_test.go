package tensor

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite golden files")

// modelOf makes a model out of thin air. Each file is a list of tensors in the
// order of their offsets; its data starts on a page border.
func modelOf(t testing.TB, files map[string][]Info, order ...string) *Model {
	t.Helper()
	m := &Model{Path: "model", byName: map[string]int{}}
	for i, name := range order {
		f := &File{Path: name, Data: pageSize, Size: pageSize}
		for _, info := range files[name] {
			info.Off, info.Len = f.Size, sizeOf(info.Dtype, info.Shape)
			f.Size += info.Len
			f.Tensors = append(f.Tensors, info)
		}
		m.Files = append(m.Files, f)
		if err := m.add(i, f, nil); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// A request is the upper half of a golden file: lines of
//
//	file NAME
//	NAME DTYPE DIM,DIM
//	target DEVICE PLAN [only=GLOB] [rule=RULE]
//	options [order=layer] [alloc=tensor] [maxread=N]
type request struct {
	files   map[string][]Info
	order   []string
	targets []Selection
	opts    PlanOptions
}

func parseRequest(t *testing.T, text string) request {
	t.Helper()
	r := request{files: map[string][]Info{}}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		switch words[0] {
		case "file":
			r.order = append(r.order, words[1])
		case "target":
			r.targets = append(r.targets, parseTarget(t, words[1:]))
		case "options":
			parseOptions(t, &r.opts, words[1:])
		default:
			name := r.order[len(r.order)-1]
			r.files[name] = append(r.files[name], parseTensor(t, words))
		}
	}
	return r
}

func parseTensor(t *testing.T, words []string) Info {
	t.Helper()
	info := Info{Name: words[0], Dtype: Dtype(words[1]), Shape: []int64{}}
	if len(words) > 2 {
		for dim := range strings.SplitSeq(words[2], ",") {
			info.Shape = append(info.Shape, int64(atoi(t, dim)))
		}
	}
	return info
}

func parseTarget(t *testing.T, words []string) Selection {
	t.Helper()
	var plan string
	var only, rules []string
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "only":
			only = append(only, value)
		case "rule":
			rules = append(rules, value)
		default:
			plan = w
		}
	}
	sel, err := ParseSelection(plan, rules...)
	if err != nil {
		t.Fatal(err)
	}
	sel.Device, sel.Only = atoi(t, words[0]), only
	return sel
}

func parseOptions(t *testing.T, o *PlanOptions, words []string) {
	t.Helper()
	for _, w := range words {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "order":
			o.ByLayer = true
		case "alloc":
			o.PerTensor = true
		case "maxread":
			o.MaxRead = int64(atoi(t, value))
		}
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPlanGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/plan/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			const mark = "----\n"
			ask, want, _ := strings.Cut(string(text), mark)
			r := parseRequest(t, ask)
			p, err := NewPlan(modelOf(t, r.files, r.order...), r.targets, &r.opts)
			var got string
			if err != nil {
				got = "error: " + err.Error() + "\n"
			} else {
				got = p.String()
				checkPlan(t, p)
			}
			if *update {
				if err := os.WriteFile(path, []byte(ask+mark+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("plan (-want +got), -update to accept:\n%s", diff)
			}
		})
	}
}

func TestPlanJSON(t *testing.T) {
	m := modelOf(t, map[string][]Info{"f": {{Name: "a.0.q_proj.weight", Dtype: BF16, Shape: []int64{4, 2}}}}, "f")
	p, err := NewPlan(m, []Selection{{Device: 3, Tensor: Rank{1, 2}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"model":"model","files":["f"],"of_tensors":1,"align":256,"buffers":[{"device":3,"bytes":8}],` +
		`"tensors":[{"name":"a.0.q_proj.weight","dtype":"BF16","shape":[2,2],"of_shape":[4,2],"cuts":[{"dim":0,"from":2,"to":4}],"file":0,"buffer":0,"offset":0,"bytes":8}],` +
		`"reads":[{"file":0,"offset":4104,"bytes":8,"count":1,"buffer":0,"to":0,"first":0,"last":0}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// llama is the shape of an 8 billion parameter model.
func llama(layers int) []Info {
	w := func(name string, shape ...int64) Info { return Info{Name: name, Dtype: BF16, Shape: shape} }
	infos := []Info{w("model.embed_tokens.weight", 128256, 4096)}
	for i := range layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		infos = append(
			infos,
			w(p+"input_layernorm.weight", 4096),
			w(p+"mlp.down_proj.weight", 4096, 14336),
			w(p+"mlp.gate_proj.weight", 14336, 4096),
			w(p+"mlp.up_proj.weight", 14336, 4096),
			w(p+"post_attention_layernorm.weight", 4096),
			w(p+"self_attn.k_proj.weight", 1024, 4096),
			w(p+"self_attn.o_proj.weight", 4096, 4096),
			w(p+"self_attn.q_proj.weight", 4096, 4096),
			w(p+"self_attn.v_proj.weight", 1024, 4096),
		)
	}
	return append(infos, w("model.norm.weight", 4096), w("lm_head.weight", 128256, 4096))
}

// A quarter of a model must not cost more than a quarter, and a whole model
// must be a few large reads.
func TestPlanReadsOnlyWhatIsWanted(t *testing.T) {
	m := modelOf(t, map[string][]Info{"m": llama(32)}, "m")
	for rank := range 4 {
		p, err := NewPlan(m, []Selection{{Tensor: Rank{rank, 4}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
		if r := float64(p.Totals().Read) / (float64(bytesOf(m)) / 4); r > 1.05 {
			t.Errorf("rank %d reads %.3f of a quarter", rank, r)
		}
	}
	p, err := NewPlan(m, []Selection{{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	most := bytesOf(m)/defaultMaxRead + 2
	if got := p.Totals(); got.Read != bytesOf(m) || int64(got.Reads) > most {
		t.Errorf("the whole model of %d bytes takes %+v, want at most %d reads", bytesOf(m), got, most)
	}
}

// checkPlan checks the guarantees of a plan, without looking at bytes.
func checkPlan(t interface {
	Errorf(string, ...any)
}, p *Plan,
) {
	type span struct{ from, to uint64 }
	written := make([][]span, len(p.Buffers))
	for i, r := range p.Reads {
		size := uint64(r.Size())
		if r.Len <= 0 || r.Count < 1 || r.Dst+size > p.Buffers[r.Buffer].Size {
			t.Errorf("read %d is outside its buffer: %+v", i, r)
		}
		for _, s := range written[r.Buffer] {
			if r.Dst < s.to && s.from < r.Dst+size {
				t.Errorf("read %d writes what another wrote: %+v", i, r)
			}
		}
		written[r.Buffer] = append(written[r.Buffer], span{r.Dst, r.Dst + size})
	}
	for i, a := range p.Tensors {
		if a.Off%p.Align != 0 {
			t.Errorf("%s is not aligned: %#x", a.Name, a.Off)
		}
		if a.Off+a.Len > p.Buffers[a.Buffer].Size {
			t.Errorf("%s is outside its buffer", a.Name)
		}
		for _, b := range p.Tensors[:i] {
			if a.Buffer == b.Buffer && a.Off < b.Off+b.Len && b.Off < a.Off+a.Len {
				t.Errorf("%s and %s overlap", a.Name, b.Name)
			}
		}
		var covered uint64
		for j, r := range p.Reads {
			if r.Buffer != a.Buffer {
				continue
			}
			from, to := max(r.Dst, a.Off), min(r.Dst+uint64(r.Size()), a.Off+a.Len)
			if from < to {
				covered += to - from
				if i < r.First || i > r.Last {
					t.Errorf("read %d brings bytes of %s and does not say so", j, a.Name)
				}
			}
		}
		for _, c := range p.Copies {
			if c.To == i {
				if from := &p.Tensors[c.From]; from.Name != a.Name || from.Len != a.Len || !slices.Equal(from.Cuts, a.Cuts) {
					t.Errorf("%s is copied from %+v", a.Name, from)
				}
				covered += a.Len
			}
		}
		if covered != a.Len {
			t.Errorf("%s: %d of %d bytes are read or copied", a.Name, covered, a.Len)
		}
	}
	if s := p.Totals(); s.Read*(maxOverRead-1) > s.Wanted*maxOverRead {
		t.Errorf("reads %d for %d", s.Read, s.Wanted)
	}
}

// Blocks counts what a drive can move.
func TestPlanBlocks(t *testing.T) {
	p := &Plan{Reads: []Read{
		{Off: 4096, Len: 8192, Count: 1, Dst: 0},
		{Off: 100, Len: 8192, Count: 1, Dst: 8192 + 100},    // 1 whole block
		{Off: 256, Len: 512, Count: 1, Dst: 256},            // none
		{Off: 128, Len: 8192, Count: 1, Dst: 0},             // not in phase
		{Off: 0, Len: 4096, Count: 3, Stride: 6144, Dst: 0}, // the second is not
	}}
	whole, inPhase, all := p.Blocks(4096)
	if whole != 8192+4096+2*4096 || inPhase != 8192+8192+512+2*4096 || all != 3*8192+512+3*4096 {
		t.Errorf("whole %d, in phase %d, all %d", whole, inPhase, all)
	}
}
