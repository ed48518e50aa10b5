package pythonapi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/tensor"
)

// plainSlice cuts a box the plain way: element by element.
func plainSlice(data []byte, width int64, shape []int64, ranges [][3]int64) []byte {
	var out []byte
	index := make([]int64, len(shape))
	for i := range index {
		index[i] = ranges[i][0]
		if ranges[i][0] == ranges[i][1] {
			return nil
		}
	}
	for {
		at := int64(0)
		for i := range index {
			at = at*shape[i] + index[i]
		}
		out = append(out, data[at*width:(at+1)*width]...)
		i := len(index) - 1
		for ; i >= 0; i-- {
			if index[i] += ranges[i][2]; index[i] < ranges[i][1] {
				break
			}
			index[i] = ranges[i][0]
		}
		if i < 0 {
			return out
		}
	}
}

// TestSlices: a slice has exactly its bytes, and reads no others.
func TestSlices(t *testing.T) {
	c := newCaller(t)
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dtype := rapid.SampledFrom([]tensor.Dtype{"U8", "BF16", "F32", "C64"}).Draw(rt, "dtype")
		few := rapid.SampledFrom([]bool{false, false, false, false, false, false, false, false, true})
		shape := rapid.SliceOfN(rapid.Int64Range(1, 6), 0, 5).Draw(rt, "shape")
		ranges := make([][3]int64, len(shape))
		empty := false
		for i, dim := range shape {
			a := rapid.Int64Range(0, dim-1).Draw(rt, "from")
			b := rapid.Int64Range(a+1, dim).Draw(rt, "to")
			switch {
			case few.Draw(rt, "no such dimension"):
				shape[i], a, b = 0, 0, 0
			case few.Draw(rt, "nothing of it"):
				b = a
			case rapid.IntRange(0, 2).Draw(rt, "all of it") == 2:
				a, b = 0, dim
			}
			step := rapid.Int64Range(1, 3).Draw(rt, "step")
			ranges[i] = [3]int64{a, b, step}
			empty = empty || a == b
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.safetensors", n))
		data := save(t, path, info("before", "U8", 3), info("w", dtype, shape...))
		defer os.Remove(path)
		m := c.open(path)
		defer c.Release(m.Model)
		var want []byte
		if !empty {
			want = plainSlice(data["w"], int64(dtype.Bits()/8), shape, ranges)
		}
		p := c.planned(m.Model, fields{"tensor": "w", "ranges": ranges})
		defer c.Release(p.Plan)
		got, rec := c.host(p, false)
		if !bytes.Equal(got[0], want) || rec.Bytes != int64(len(want)) {
			rt.Fatalf("shape %v, ranges %v: %d bytes read\n%x, want\n%x", shape, ranges, rec.Bytes, got[0], want)
		}
		a := c.load(m.Model, fields{"tensor": "w", "ranges": ranges, "gpus": []int{0}})
		defer c.Release(a.Memory)
		if !bytes.Equal(c.bytes(a.Memory, 0, int64(len(want))), want) || a.Receipt.Bytes != int64(len(want)) {
			rt.Fatalf("shape %v, ranges %v: other bytes on the GPU", shape, ranges)
		}
	})
}
