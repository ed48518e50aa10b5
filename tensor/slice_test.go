package tensor

import (
	"strings"
	"testing"
)

// Dimensions that are taken whole cost no reads of their own.
func TestSliceReads(t *testing.T) {
	m := modelOf(t, map[string][]Info{"f": {{Name: "w", Dtype: U8, Shape: []int64{4, 5, 6, 7}}}}, "f")
	for _, tt := range []struct {
		ranges [][3]int64
		reads  int
		runs   int64
		whole  bool
	}{
		{nil, 1, 1, true},
		{[][3]int64{{0, 4}, {0, 5}, {0, 6}, {0, 7}}, 1, 1, true},
		{[][3]int64{{1, 3}, {0, 5}, {0, 6}, {0, 7}}, 1, 1, false},
		{[][3]int64{{0, 4}, {0, 5}, {0, 6}, {1, 3}}, 1, 120, false},
		{[][3]int64{{0, 4}, {1, 3}, {0, 6}, {0, 7}}, 1, 4, false},
		{[][3]int64{{1, 4}, {1, 3}, {0, 6}, {0, 7}}, 1, 3, false},
		{[][3]int64{{1, 4}, {1, 3}, {2, 4}, {0, 7}}, 3, 6, false},
		{[][3]int64{{1, 4}, {1, 3}, {2, 4}, {1, 2}}, 6, 12, false},
		{[][3]int64{{1, 4}, {1, 1}, {2, 4}, {1, 2}}, 0, 0, false},
		{[][3]int64{{0, 4, 1}, {0, 5, 1}, {0, 6, 1}, {0, 7, 1}}, 1, 1, true},
		{[][3]int64{{0, 4, 2}, {0, 5}, {0, 6}, {0, 7}}, 1, 2, false},
		{[][3]int64{{0, 4}, {0, 5}, {0, 6}, {0, 7, 3}}, 120, 360, false},
		{[][3]int64{{0, 4, 3}, {0, 5, 2}, {0, 6}, {0, 7}}, 2, 6, false},
	} {
		p, err := m.PlanSlice(m.Tensors[0], tt.ranges, 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, p)
		if sum := p.Totals(); sum.Reads != tt.reads || sum.Runs != tt.runs || p.Buffers[0].Device != 3 {
			t.Errorf("%v takes %d reads of %d runs, want %d, %d", tt.ranges, sum.Reads, sum.Runs, tt.reads, tt.runs)
		}
		if whole := p.Tensors[0].Whole == nil; whole != tt.whole {
			t.Errorf("%v is all of the tensor: %v", tt.ranges, whole)
		}
	}
}

func TestSliceErrors(t *testing.T) {
	for _, tt := range []struct {
		dtype  Dtype
		shape  []int64
		ranges [][3]int64
		want   string
	}{
		{U8, []int64{4}, [][3]int64{{0, 4}, {0, 1}}, "has 1 dimensions, the slice 2"},
		{U8, []int64{4}, [][3]int64{{0, 5}}, "[0, 5) is outside dimension 0 of 4"},
		{U8, []int64{4}, [][3]int64{{-1, 3}}, "outside dimension 0"},
		{U8, []int64{4}, [][3]int64{{3, 2}}, "outside dimension 0"},
		{F4, []int64{4, 4}, [][3]int64{{0, 4}, {1, 2}}, "[1, 2) of dimension 1 is not byte-aligned"},
		{F4, []int64{2, 3}, [][3]int64{{1, 2}, {0, 2}}, "[0, 2) of dimension 1 is not byte-aligned"},
		{U8, []int64{4}, [][3]int64{{0, 4, -1}}, "step -1 of dimension 0 must be positive"},
		{F4, []int64{4, 4}, [][3]int64{{0, 4}, {0, 4, 2}}, "not byte-aligned"},
		// The first plane is aligned, the second is not.
		{F4, []int64{4, 3, 3}, [][3]int64{{0, 2}, {0, 1}, {0, 2}}, "not byte-aligned"},
		{U8, []int64{2000, 2000, 2, 2}, [][3]int64{{0, 1999}, {0, 1999}, {0, 1}, {0, 1}}, "cut in too many dimensions"},
	} {
		m := modelOf(t, map[string][]Info{"f": {{Name: "w", Dtype: tt.dtype, Shape: tt.shape}}}, "f")
		if _, err := m.PlanSlice(m.Tensors[0], tt.ranges, 0, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %v, %v: %v, want %q", tt.dtype, tt.shape, tt.ranges, err, tt.want)
		}
	}
}
