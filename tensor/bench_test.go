package tensor

import (
	"bytes"
	"fmt"
	"testing"
)

// mixture is the shape of a model with many experts: some 90,000 tensors.
func mixture() []Info {
	var infos []Info
	for layer := range 58 {
		for expert := range 256 {
			p := fmt.Sprintf("model.layers.%d.mlp.experts.%d.", layer, expert)
			for _, name := range []string{"down_proj", "gate_proj", "up_proj"} {
				infos = append(
					infos,
					Info{Name: p + name + ".weight", Dtype: F8_E4M3, Shape: []int64{2048, 7168}},
					Info{Name: p + name + ".weight_scale_inv", Dtype: F32, Shape: []int64{16, 56}},
				)
			}
		}
	}
	return infos
}

func BenchmarkNewPlan(b *testing.B) {
	m := modelOf(b, map[string][]Info{"m": mixture()}, "m")
	for b.Loop() {
		if _, err := NewPlan(m, []Selection{{Tensor: Rank{1, 8}}}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHeader(b *testing.B) {
	f := modelOf(b, map[string][]Info{"m": mixture()}, "m").Files[0]
	for i := range f.Tensors {
		f.Tensors[i].Off -= f.Data
	}
	header, err := f.encode(pageSize)
	if err != nil {
		b.Fatal(err)
	}
	size := int64(len(header)) + f.Size - f.Data
	b.SetBytes(int64(len(header)))
	for b.Loop() {
		if _, err := readHeader(bytes.NewReader(header), size); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTally(b *testing.B) {
	f := &File{Data: pageSize, Size: pageSize + defaultChunk, Tensors: []Info{{"w", U8, []int64{defaultChunk}, pageSize, defaultChunk, 0}}}
	t, p := newChunkSums(f, defaultChunk), make([]byte, defaultChunk)
	b.SetBytes(defaultChunk)
	for b.Loop() {
		t.add(0, p)
	}
}
