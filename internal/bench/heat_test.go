package bench

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// Each latency is in the row that begins at or below it and ends above it.
func TestHeatRow(t *testing.T) {
	for took := 4 * time.Nanosecond; took < time.Hour; took += took/9 + 1 {
		if row := heatRow(took); heatLow(row) > took || heatLow(row+1) <= took {
			t.Errorf("%v is in row %d, from %v to %v", took, row, heatLow(row), heatLow(row+1))
		}
	}
	for _, odd := range []time.Duration{-1, 0, 3, 1 << 62} {
		if row := heatRow(odd); row < 0 || row >= heatRows {
			t.Errorf("%d ns is in row %d", odd, row)
		}
	}
}

// No call is lost, however long the run, and callers of different length are joined.
func TestHeatKeepsEveryCall(t *testing.T) {
	long, short := newHeat(), newHeat()
	for i := range 1000 {
		long.add(time.Duration(i)*time.Millisecond, time.Microsecond)
	}
	for range 7 {
		short.add(time.Millisecond, 5*time.Microsecond)
	}
	for range 2 {
		long.add(0, time.Microsecond)
	}
	shorter := newHeat()
	shorter.add(time.Millisecond, 5*time.Microsecond)
	sum := newHeat()
	for _, h := range []*heat{short, long, shorter} { // the sum becomes wider, then what is added
		sum.merge(h)
	}
	m := sum.result()
	if m.Column != 128<<7 || len(m.Calls) != 61 { // 96 columns of 8.192 ms are too few for 999 ms
		t.Errorf("%d columns of %v us", len(m.Calls), m.Column)
	}
	if len(m.Rows) != 11 || m.Rows[0] != 0.896 || m.Rows[10] != 5.12 {
		t.Errorf("rows %v", m.Rows)
	}
	var calls uint32
	for _, c := range m.Calls {
		for _, n := range c {
			calls += n
		}
	}
	if first := m.Calls[0]; calls != 1010 || first[0] != 19 || first[9] != 8 {
		t.Errorf("%d calls, the first column is %v", calls, first)
	}
	if newHeat().result() != nil {
		t.Error("a map of no calls")
	}
}

// A run has a map only if it is asked for one.
func TestHeatOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []bool{false, true} {
			rec := &recorder{take: [2]time.Duration{time.Millisecond, 0}}
			w := Workload{Pattern: SeqRead, Block: 4096, Threads: 2, Batch: 1, Bytes: 10 * 4096, Heat: asked}
			res, err := (&run{w: w, e: rec.engine(), size: 1 << 20, dev: memoryless{}}).do(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !asked {
				if res.Heat != nil {
					t.Error("a map that nothing asked for")
				}
				continue
			}
			want := []uint32{2} // both callers make a call per millisecond
			if res.Heat.Column != 128 || len(res.Heat.Calls) != 40 || !reflect.DeepEqual(res.Heat.Calls[7], want) || !reflect.DeepEqual(res.Heat.Calls[39], want) || len(res.Heat.Calls[8]) != 0 {
				t.Errorf("%+v", res.Heat)
			}
		}
	})
}
