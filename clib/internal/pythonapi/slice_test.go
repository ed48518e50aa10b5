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
func plainSlice(data []byte, width int64, shape []int64, ranges [][2]int64) []byte {
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
			if index[i]++; index[i] < ranges[i][1] {
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
		dtype := rapid.SampledFrom([]tensor.Dtype{tensor.U8, tensor.BF16, tensor.F32, tensor.C64}).Draw(rt, "dtype")
		few := rapid.SampledFrom([]bool{false, false, false, false, false, false, false, false, true})
		shape := rapid.SliceOfN(rapid.Int64Range(1, 6), 0, 5).Draw(rt, "shape")
		ranges := make([][2]int64, len(shape))
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
			ranges[i] = [2]int64{a, b}
			empty = empty || a == b
		}
		path := filepath.Join(dir, fmt.Sprintf("%d.safetensors", n))
		data := save(t, path, info("before", tensor.U8, 3), info("w", dtype, shape...))
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

// TestSliceReads: dimensions that are taken whole cost no reads of their own.
func TestSliceReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	save(t, path, info("w", tensor.U8, 4, 5, 6, 7))
	m, err := tensor.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := m.Lookup("w")
	for _, tt := range []struct {
		ranges [][2]int64
		reads  int
		runs   int64
	}{
		{nil, 1, 1},
		{[][2]int64{{1, 3}, {0, 5}, {0, 6}, {0, 7}}, 1, 1},
		{[][2]int64{{0, 4}, {0, 5}, {0, 6}, {1, 3}}, 1, 120},
		{[][2]int64{{0, 4}, {1, 3}, {0, 6}, {0, 7}}, 1, 4},
		{[][2]int64{{1, 4}, {1, 3}, {0, 6}, {0, 7}}, 1, 3},
		{[][2]int64{{1, 4}, {1, 3}, {2, 4}, {0, 7}}, 3, 6},
		{[][2]int64{{1, 4}, {1, 3}, {2, 4}, {1, 2}}, 6, 12},
	} {
		p, err := planSlice(m, e, tt.ranges, 0)
		if err != nil {
			t.Fatal(err)
		}
		if sum := p.Totals(); sum.Reads != tt.reads || sum.Runs != tt.runs {
			t.Errorf("%v takes %d reads of %d runs, want %d, %d", tt.ranges, sum.Reads, sum.Runs, tt.reads, tt.runs)
		}
	}
}

// TestBounded: large reads are cut, and the pieces make up the whole.
func TestBounded(t *testing.T) {
	for _, r := range []tensor.Read{
		{Off: 8, Len: 3*sliceRead + 5, Count: 1, Dst: 16},
		{Off: 8, Len: sliceRead / 4, Count: 11, Stride: sliceRead / 2, Dst: 16},
		{Off: 8, Len: sliceRead / 4, Count: 11, Stride: sliceRead / 4, Dst: 16},
		{Off: 8, Len: sliceRead + 1, Count: 3, Stride: 2 * sliceRead, Dst: 16},
	} {
		dst, sum := r.Dst, int64(0)
		for _, part := range appendBounded(nil, r) {
			if part.Dst != dst {
				t.Errorf("%+v goes to %d, want %d", part, part.Dst, dst)
			}
			if part.Count > 1 && part.Size() > sliceRead {
				t.Errorf("%+v has %d bytes", part, part.Size())
			}
			dst += uint64(part.Size())
			sum += part.Size()
		}
		if sum != r.Size() {
			t.Errorf("%+v became %d bytes", r, sum)
		}
	}
	m, e := &tensor.Model{}, tensor.Entry{Info: info("w", tensor.U8, 2000, 2000, 2, 2)}
	if _, err := planSlice(m, e, [][2]int64{{0, 1999}, {0, 1999}, {0, 1}, {0, 1}}, 0); err == nil {
		t.Error("four million reads are planned")
	}
}
