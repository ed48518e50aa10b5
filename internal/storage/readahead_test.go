package storage

import (
	"fmt"
	"testing"
)

const mib = int64(1) << 20

// TestReadAhead follows runs of reads; sizes are in MiB.
func TestReadAhead(t *testing.T) {
	type read struct {
		off, n int64
		req    Range
		cold   bool
		want   string
	}
	for _, tt := range []struct {
		name  string
		size  int64
		reads []read
	}{
		{"one large request: the lead grows by a step for each chunk", 1024, []read{
			{0, 4, Range{0, 1024}, true, "0-8"}, {4, 4, Range{0, 1024}, false, "8-16"}, {8, 4, Range{0, 1024}, false, "16-24"}, {12, 4, Range{0, 1024}, false, "24-32"},
		}},
		{"never further than the lead", 1024, append(repeat(func(i int64) read { return read{4 * i, 4, Range{0, 1024}, i == 0, fmt.Sprintf("%d-%d", 8*i, 8*i+8)} }, 15),
			read{60, 4, Range{0, 1024}, false, "120-128"}, read{64, 4, Range{0, 1024}, false, "128-132"}, read{68, 4, Range{0, 1024}, false, "132-136"})},
		{"a request alone is asked for as a whole, and no more", 1024, []read{{100, 1, Range{100, 101}, true, "100-101"}, {300, 1, Range{300, 301}, true, "300-301"}}},
		{"a sequential reader gets the next steps", 1024, []read{
			{0, 4, Range{0, 4}, true, "0-4"}, {4, 4, Range{4, 8}, true, "4-8"}, {8, 4, Range{8, 12}, true, "8-16"}, {12, 4, Range{12, 16}, false, "16-24"},
		}},
		{"a sequential reader of small requests gets whole steps", 1024, append(repeat(func(i int64) read { return read{i, 1, Range{i, i + 1}, true, fmt.Sprintf("%d-%d", i, i+1)} }, 8),
			read{8, 1, Range{8, 9}, true, "8-16"}, read{9, 1, Range{9, 10}, false, "16-20"}, read{10, 1, Range{10, 11}, false, "0-0"}, read{11, 1, Range{11, 12}, false, "20-24"}, read{12, 1, Range{12, 13}, false, "0-0"})},
		{"its lead is what it has read, and no more than eight steps", 1024, append(repeat(func(i int64) read {
			return read{4 * i, 4, Range{4 * i, 4*i + 4}, i < 3, []string{"0-4", "4-8", "8-16"}[min(i, 2)]}
		}, 3),
			repeat(func(i int64) read {
				return read{4*i + 12, 4, Range{4*i + 12, 4*i + 16}, false, []string{"16-24", "24-32", "32-40", "40-48", "48-56", "56-64", "64-72", "72-76"}[i]}
			}, 8)...)},
		{"large requests anywhere get nothing behind their ends", 1024, []read{{100, 16, Range{100, 116}, true, "100-116"}, {300, 16, Range{300, 316}, true, "300-316"}}},
		{"not past the end of the file", 10, []read{{0, 4, Range{0, 1024}, true, "0-8"}, {4, 4, Range{0, 1024}, false, "8-10"}, {8, 2, Range{0, 1024}, false, "0-0"}}},
		{"what was dropped is asked for again", 1024, []read{{0, 4, Range{0, 4}, true, "0-4"}, {4, 4, Range{4, 8}, true, "4-8"}, {0, 4, Range{0, 4}, true, "0-4"}}},
		{"a sequential reader whose next step was dropped goes on as one", 1024, []read{
			{0, 4, Range{0, 4}, true, "0-4"}, {4, 4, Range{4, 8}, true, "4-8"}, {8, 4, Range{8, 12}, true, "8-16"}, {12, 4, Range{12, 16}, true, "12-20"},
		}},
		{"the second thread comes first", 1024, []read{{4, 4, Range{0, 1024}, true, "4-12"}, {0, 4, Range{0, 1024}, true, "0-4"}, {8, 4, Range{0, 1024}, false, "12-20"}}},
	} {
		var r readAhead
		for i, q := range tt.reads {
			from, to := r.next(q.off*mib, q.n*mib, Range{q.req.From * mib, q.req.To * mib}, tt.size*mib, q.cold, func(from, to int64) int64 { return to - from })
			r.done(from, to)
			if got := fmt.Sprintf("%d-%d", from/mib, to/mib); got != q.want {
				t.Errorf("%s: read %d asks for %s, want %s", tt.name, i, got, q.want)
			}
		}
	}
}

func repeat[T any](make func(int64) T, n int64) (list []T) {
	for i := range n {
		list = append(list, make(i))
	}
	return list
}

// TestWarmIsLeftAlone: a file that was never cold is never asked for.
func TestWarmIsLeftAlone(t *testing.T) {
	lacks := func(n int64) func(int64, int64) int64 { return func(int64, int64) int64 { return n } }
	for _, first := range []int64{0, 4 * mib} {
		var r readAhead
		for off := first; off < 64*mib; off += 4 * mib {
			if from, to := r.next(off, 4*mib, Range{0, 64 * mib}, 64*mib, false, lacks(0)); from != to {
				t.Fatalf("at %d: asks for %d-%d", off, from, to)
			}
		}
	}
	// Where the kernel does not tell, asking is the safe side.
	var r readAhead
	if from, to := r.next(0, 4*mib, Range{0, 64 * mib}, 64*mib, true, lacks(-1)); from == to {
		t.Errorf("unknown: asks for %d-%d", from, to)
	}
}

// TestAskedOnce: a range that another thread is asking for is neither asked for twice
// nor taken for dropped; one that is there by now is not asked for again.
func TestAskedOnce(t *testing.T) {
	var r readAhead
	yes, no := func(from, to int64) int64 { return to - from }, func(int64, int64) int64 { return 0 }
	req := Range{0, 4 * mib}
	from, to := r.next(0, 2*mib, req, 64*mib, true, yes)
	if from != 0 || to != 4*mib {
		t.Fatalf("asks for %d-%d", from, to)
	}
	if from, to := r.next(2*mib, 2*mib, req, 64*mib, true, yes); from != to {
		t.Errorf("while it is being asked for: %d-%d", from, to)
	}
	r.done(from, to)
	if from, to := r.next(2*mib, 2*mib, req, 64*mib, true, no); from != to {
		t.Errorf("when it is there: %d-%d", from, to)
	}
	if from, to := r.next(2*mib, 2*mib, req, 64*mib, true, yes); from != 2*mib || to != 4*mib {
		t.Errorf("when it was dropped: %d-%d", from, to)
	}
	r = readAhead{}
	r.done(r.next(0, 2*mib, req, 64*mib, true, yes))
	if from, to := r.next(2*mib, 2*mib, req, 64*mib, true, yes); from != 2*mib || to != 4*mib {
		t.Errorf("when the kernel did not do as it was asked: %d-%d", from, to)
	}
}
