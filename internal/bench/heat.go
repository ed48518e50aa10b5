package bench

import (
	"math/bits"
	"time"
)

const (
	heatColumns = 96
	heatRows    = 160 // to over an hour
	// heatWidth is that of a column at first: columns are joined when a run is longer.
	heatWidth = 128 * time.Microsecond
)

// A heat counts calls by the time of their end and their latency, in bounded memory.
type heat struct {
	width   time.Duration
	columns [heatColumns]*[heatRows]uint32 // nil: no call ended then
}

func newHeat() *heat { return &heat{width: heatWidth} }

// heatRow returns the row of a latency: four per power of two.
func heatRow(took time.Duration) int {
	n := uint64(max(took, 4))
	e := bits.Len64(n) - 3 // n>>e is 4 to 7
	return min(4*e+int(n>>e&3), heatRows-1)
}

// heatLow returns the shortest latency of a row.
func heatLow(row int) time.Duration { return time.Duration(4+row%4) << (row / 4) }

func (h *heat) add(end, took time.Duration) {
	for end >= heatColumns*h.width {
		h.halve()
	}
	h.column(int(end / h.width))[heatRow(took)]++
}

func (h *heat) column(i int) *[heatRows]uint32 {
	if h.columns[i] == nil {
		h.columns[i] = new([heatRows]uint32)
	}
	return h.columns[i]
}

// halve joins columns in pairs.
func (h *heat) halve() {
	old := h.columns
	clear(h.columns[:])
	h.width *= 2
	for i, c := range old {
		h.addColumn(i/2, c)
	}
}

func (h *heat) addColumn(i int, c *[heatRows]uint32) {
	if c == nil {
		return
	}
	to := h.column(i)
	for row, n := range c {
		to[row] += n
	}
}

// merge adds the calls of o, whose columns become as wide as those of h.
func (h *heat) merge(o *heat) {
	for h.width < o.width {
		h.halve()
	}
	for o.width < h.width {
		o.halve()
	}
	for i, c := range o.columns {
		h.addColumn(i, c)
	}
}

// A HeatMap counts calls by time and latency.
type HeatMap struct {
	Column float64    `json:"column_us"` // width
	Rows   []float64  `json:"rows_us"`   // the shortest latency of each row, and the end of the last
	Calls  [][]uint32 `json:"calls"`     // by column, then row; empty columns have none
}

// result leaves out the rows below and above all calls and the columns behind them.
func (h *heat) result() *HeatMap {
	low, high, columns := heatRows, 0, 0
	for i, c := range h.columns {
		if c == nil {
			continue
		}
		columns = i + 1
		for row, n := range c {
			if n > 0 {
				low, high = min(low, row), max(high, row)
			}
		}
	}
	if columns == 0 {
		return nil
	}
	m := &HeatMap{Column: micro(int64(h.width)), Calls: make([][]uint32, columns)}
	for row := low; row <= high+1; row++ {
		m.Rows = append(m.Rows, micro(int64(heatLow(row))))
	}
	for i := range m.Calls {
		m.Calls[i] = []uint32{}
		if c := h.columns[i]; c != nil {
			m.Calls[i] = c[low : high+1]
		}
	}
	return m
}
