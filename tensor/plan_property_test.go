package tensor

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawModel makes up a model of a few files whose tensors have the names that
// the rules know, and some that they do not.
func drawModel(t *rapid.T) *Model {
	m := &Model{Path: "m", byName: map[string]int{}}
	modules := []string{
		"self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.gate_up_proj.weight", "mlp.down_proj.weight",
		"mlp.down_proj.bias", "norm.weight", "mlp.experts.0.up_proj.weight", "mlp.experts.3.up_proj.weight",
		"mlp.experts.up", "odd", "empty",
	}
	dtypes := []Dtype{BF16, F32, F8_E4M3, U8, F4, F6_E3M2, C64}
	layers := rapid.IntRange(1, 3).Draw(t, "layers")
	all := []string{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
	for i := range layers {
		for _, mod := range modules {
			all = append(all, fmt.Sprintf("model.layers.%d.%s", i, mod))
		}
	}
	all = rapid.Permutation(all).Draw(t, "order")
	nfiles := rapid.IntRange(1, 3).Draw(t, "files")
	for i := range nfiles {
		f := &File{Path: fmt.Sprint(i), Data: int64(rapid.IntRange(8, 5000).Draw(t, "data"))}
		f.Size = f.Data
		for j, name := range all {
			if j%nfiles != i || rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
				continue
			}
			info := Info{Name: name, Dtype: rapid.SampledFrom(dtypes).Draw(t, "dtype"), Off: f.Size}
			// A quarter of half of 32 elements is whole bytes whatever the type.
			info.Shape = []int64{
				32 * rapid.Int64Range(0, 2).Draw(t, "rows"),
				32 * rapid.Int64Range(1, 5).Draw(t, "columns"),
			}
			switch {
			case strings.HasSuffix(name, ".experts.up"):
				info.Shape = append([]int64{4}, info.Shape...)
			case rapid.IntRange(0, 3).Draw(t, "vector") == 0:
				info.Shape = info.Shape[:1]
			}
			info.Len = sizeOf(info.Dtype, info.Shape)
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

func drawSelection(t *rapid.T) Selection {
	rank := func(name string, of ...int) Rank {
		n := rapid.SampledFrom(of).Draw(t, name)
		if n == 0 {
			return Rank{}
		}
		return Rank{rapid.IntRange(0, n-1).Draw(t, name+" rank"), n}
	}
	// Stacked experts are cut twice: by expert, then by this rule.
	sel := Selection{
		Rules:  []string{"*.experts.up=2/2"},
		Tensor: rank("tp", 0, 1, 2, 4), Pipeline: rank("pp", 0, 0, 0, 2), Expert: rank("ep", 0, 0, 2),
	}
	if rapid.IntRange(0, 5).Draw(t, "only") == 0 {
		sel.Only = []string{rapid.SampledFrom([]string{"*.weight", "*proj*", "*layers.0.*"}).Draw(t, "glob")}
	}
	return sel
}

// fileByte is the byte of a file at an offset: different for neighbours and for
// equal offsets of different files.
func fileByte(file int, off int64) byte {
	x := uint64(off)*0x9e3779b97f4a7c15 + uint64(file+1)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	x *= 0x94d049bb133111eb
	return byte(x >> 56)
}

// A plan, carried out, puts every wanted byte where it belongs, once.
func TestPlanMovesTheRightBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		opts := &PlanOptions{
			ByLayer:   rapid.Bool().Draw(t, "by layer"),
			PerTensor: rapid.Bool().Draw(t, "per tensor"),
			Apart:     rapid.Bool().Draw(t, "apart"),
			MaxRead:   int64(rapid.IntRange(4096, 20000).Draw(t, "maxread")),
		}
		targets := []Selection{drawSelection(t), drawSelection(t)}
		targets[1].Device = 1
		p, err := NewPlan(m, targets, opts)
		if err != nil {
			if !strings.Contains(err.Error(), "is selected") {
				t.Fatal(err)
			}
			return
		}
		checkPlan(t, p)
		devices := make([][]byte, len(p.Buffers))
		times := make([][]byte, len(p.Buffers))
		for i, b := range p.Buffers {
			devices[i], times[i] = make([]byte, b.Size), make([]byte, b.Size)
		}
		for _, r := range p.Reads {
			if r.Size() > opts.MaxRead {
				t.Fatalf("a read of %d bytes", r.Size())
			}
			for i := range r.Count {
				for j := range r.Len {
					off, dst := r.Off+i*r.Stride+j, r.Dst+uint64(i*r.Len+j)
					if f := m.Files[r.File]; off < f.Data || off >= f.Size {
						t.Fatalf("reads %d of %s, whose data is [%d, %d)", off, f.Path, f.Data, f.Size)
					}
					devices[r.Buffer][dst] = fileByte(r.File, off)
					times[r.Buffer][dst]++
				}
			}
		}
		for _, c := range p.Copies {
			from, to := &p.Tensors[c.From], &p.Tensors[c.To]
			copy(devices[to.Buffer][to.Off:to.Off+to.Len], devices[from.Buffer][from.Off:])
			for i := range to.Len {
				times[to.Buffer][to.Off+i]++
			}
		}
		for _, placed := range p.Tensors {
			checkBytes(t, m, &placed, devices[placed.Buffer], times[placed.Buffer])
		}
	})
}

// checkBytes compares a tensor with the elements of the file that its cuts
// name, found one by one.
func checkBytes(t *rapid.T, m *Model, p *Placed, device, times []byte) {
	e, _ := m.Lookup(p.Name)
	bits := int64(e.Dtype.Bits())
	wantShape, indexes := elements(e.Shape, p.Cuts)
	if fmt.Sprint(wantShape) != fmt.Sprint(p.Shape) {
		t.Fatalf("%s: shape %v, want %v", p.Name, p.Shape, wantShape)
	}
	bit := func(b func(int64) byte, i int64) byte { return b(i/8) >> (i % 8) & 1 }
	inFile := func(i int64) byte { return fileByte(e.File, e.Off+i) }
	onDevice := func(i int64) byte { return device[p.Off+uint64(i)] }
	for n, index := range indexes {
		for k := range bits {
			if bit(inFile, index*bits+k) != bit(onDevice, int64(n)*bits+k) {
				t.Fatalf("%s: element %d differs", p.Name, n)
			}
		}
	}
	if want := uint64(int64(len(indexes)) * bits / 8); p.Len != want {
		t.Fatalf("%s: %d bytes, want %d", p.Name, p.Len, want)
	}
	for i := range p.Len {
		if times[p.Off+i] != 1 {
			t.Fatalf("%s: byte %d was written %d times", p.Name, i, times[p.Off+i])
		}
	}
}

// elements lists the elements that cuts leave, in order, by their index in the
// whole tensor, and the shape that they form.
func elements(shape []int64, cuts []Cut) (left, indexes []int64) {
	keep := func(dim int, i int64) bool {
		for _, c := range cuts {
			if block := shape[dim] / max(c.Parts, 1); c.Dim == dim && (i%block < c.From || i%block >= c.To) {
				return false
			}
		}
		return true
	}
	left = make([]int64, len(shape))
	indexes = []int64{0}
	for dim, n := range shape {
		var next []int64
		for i := range n {
			if keep(dim, i) {
				left[dim]++
			}
		}
		for _, index := range indexes {
			for i := range n {
				if keep(dim, i) {
					next = append(next, index*n+i)
				}
			}
		}
		indexes = next
	}
	return left, indexes
}

// The ranks of a group together have each element once.
func TestSplitSharesOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(2, 9).Draw(t, "ranks")
		n := rapid.Int64Range(2, 100).Draw(t, "n")
		rule := splitRule{uneven: true, parts: rapid.Int64Range(0, 3).Draw(t, "parts")}
		info := Info{Name: "x", Dtype: U8, Shape: []int64{n * max(rule.parts, 1)}}
		seen := make([]int, info.Shape[0])
		for i := range of {
			cut, err := rule.cut(Rank{i, of}, info)
			if err != nil {
				t.Fatal(err)
			}
			_, indexes := elements(info.Shape, []Cut{*cut})
			for _, j := range indexes {
				seen[j]++
			}
		}
		for i, k := range seen {
			if k != 1 {
				t.Fatalf("element %d belongs to %d ranks", i, k)
			}
		}
	})
}
