package cufiletest

import "testing"

// Every combination of three values that can occur together does.
func TestTriplesAreCovered(t *testing.T) {
	dims := dims()
	rows := triples(dims, possible)
	for _, row := range rows {
		if !possible(row) {
			t.Fatalf("row %v is not possible", row)
		}
	}
	missing, all := 0, allTriples(dims)
	for _, tr := range all {
		if !anyRow(rows, tr) && canOccur(dims, tr) {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d combinations of three values occur in none of %d rows", missing, len(all), len(rows))
	}
}

func anyRow(rows [][]int, t triple) bool {
	for _, row := range rows {
		if t.in(row) {
			return true
		}
	}
	return false
}

// canOccur tries all rows around a triple in the dimensions that possible looks
// at, and it looks at two.
func canOccur(dims []int, t triple) bool {
	for kind := range dims[1] {
		for buffer := range dims[7] {
			row := make([]int, len(dims))
			row[1], row[7] = kind, buffer
			for i, d := range t.dim {
				row[d] = t.val[i]
			}
			if possible(row) {
				return true
			}
		}
	}
	return false
}

func TestNamesAreUnique(t *testing.T) {
	cases := Cases()
	if len(cases) < 800 {
		t.Errorf("%d cases, there were more", len(cases))
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.Name] {
			t.Errorf("two cases have the name %q", c.Name)
		}
		seen[c.Name] = true
	}
	t.Logf("%d cases", len(cases))
}
