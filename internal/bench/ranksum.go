package bench

import (
	"cmp"
	"slices"
)

// rankSum is the two-sided p-value of the Mann-Whitney test: how probable it is that
// two samples of the same distribution differ by this much or more in their ranks. It
// is exact, also with ties: it counts all ways to divide the values.
func rankSum(a, b []float64) float64 {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 1
	}
	ranks := doubledRanks(a, b)
	total, observed := 0, 0
	for i, r := range ranks {
		total += r
		if i < n {
			observed += r
		}
	}
	// ways[k][s] is how many sets of k values have ranks that sum to s.
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, total+1)
	}
	ways[0][0] = 1
	for i, r := range ranks {
		for k := min(i+1, n); k > 0; k-- {
			for s := total; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	// The mean is n (n+m+1) of doubled ranks.
	mean := n * (n + m + 1)
	far := max(observed-mean, mean-observed)
	all, extreme := 0.0, 0.0
	for s, w := range ways[n] {
		all += w
		if max(s-mean, mean-s) >= far {
			extreme += w
		}
	}
	return extreme / all
}

// doubledRanks returns twice the rank of each value of a, then of b. Ties share the
// mean of their ranks, which is half an integer.
func doubledRanks(a, b []float64) []int {
	all := slices.Concat(a, b)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(all[i], all[j]) })
	ranks := make([]int, len(all))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			ranks[k] = i + 1 + j // twice the mean of i+1 and j
		}
		i = j
	}
	return ranks
}

// median is the middle of a sample that is not empty.
func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}
