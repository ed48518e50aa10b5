package cufiletest

import "math/rand/v2"

// A triple is three dimensions in ascending order and a value of each.
type triple struct{ dim, val [3]int }

func (t triple) in(row []int) bool {
	return row[t.dim[0]] == t.val[0] && row[t.dim[1]] == t.val[1] && row[t.dim[2]] == t.val[2]
}

// triples returns rows of indices below dims in which every possible
// combination of values of three dimensions occurs. It is greedy: of some
// random rows around the first triple that is missing it takes the one that adds
// most. The same dims give the same rows.
func triples(dims []int, possible func([]int) bool) [][]int {
	todo := allTriples(dims)
	covered := map[triple]bool{}
	rng := rand.New(rand.NewPCG(1, 3))
	var rows [][]int
	for _, t := range todo {
		if covered[t] {
			continue
		}
		row := bestRow(dims, t, covered, possible, rng)
		if row == nil {
			continue // no row can have this triple
		}
		eachTriple(row, func(t triple) { covered[t] = true })
		rows = append(rows, row)
	}
	return rows
}

// bestRow is a possible row with t in it and as many new triples as it finds.
func bestRow(dims []int, t triple, covered map[triple]bool, possible func([]int) bool, rng *rand.Rand) []int {
	var best []int
	most := 0
	for range 25 {
		row := make([]int, len(dims))
		for i, n := range dims {
			row[i] = rng.IntN(n)
		}
		for i, d := range t.dim {
			row[d] = t.val[i]
		}
		if !possible(row) {
			continue
		}
		fresh := 0
		eachTriple(row, func(t triple) {
			if !covered[t] {
				fresh++
			}
		})
		if fresh > most {
			best, most = row, fresh
		}
	}
	return best
}

func eachTriple(row []int, do func(triple)) {
	for a := range row {
		for b := a + 1; b < len(row); b++ {
			for c := b + 1; c < len(row); c++ {
				do(triple{[3]int{a, b, c}, [3]int{row[a], row[b], row[c]}})
			}
		}
	}
}

func allTriples(dims []int) []triple {
	var all []triple
	eachTriple(dims, func(t triple) { // its values are the dimensions' sizes
		for i := range t.val[0] {
			for j := range t.val[1] {
				for k := range t.val[2] {
					all = append(all, triple{t.dim, [3]int{i, j, k}})
				}
			}
		}
	})
	return all
}
