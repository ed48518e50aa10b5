package tensor

import "fmt"

// A Copy brings a tensor that one GPU has read to another one that gets the same
// bytes. From and To are numbers in [Plan.Tensors].
type Copy struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// A sharedItem is a tensor, or a part of one, that several GPUs get.
type sharedItem struct {
	holders []*item // in the order of the GPUs
	parts   []int   // theirs
}

// shareReads decides who reads what several GPUs get: one of them, and the others get
// a copy. Those that get the same set of items read equal shares of it, each a
// stretch of the files, so that all links are busy and reads stay long.
func shareReads(parts [][]item) {
	all := findShared(parts)
	total, done := map[string]int64{}, map[string]int64{}
	for _, s := range all {
		total[s.set()] += s.holders[0].reg.size()
	}
	for _, s := range all {
		set, size := s.set(), s.holders[0].reg.size()
		reader := min(int(float64(done[set])/float64(total[set])*float64(len(s.holders))), len(s.holders)-1)
		done[set] += size
		for i, it := range s.holders {
			it.shared, it.copied = s, i != reader
		}
	}
}

// set names the GPUs that get the item.
func (s *sharedItem) set() string { return fmt.Sprint(s.parts) }

// findShared returns what more than one part has, in the order of the files.
func findShared(parts [][]item) (shared []*sharedItem) {
	seen := map[string]*sharedItem{}
	var all []*sharedItem
	for i := range parts {
		for k := range parts[i] {
			it := &parts[i][k]
			if it.reg.size() == 0 {
				continue
			}
			key := fmt.Sprint(it.info.Name, it.cuts)
			if seen[key] == nil {
				seen[key] = &sharedItem{}
				all = append(all, seen[key])
			}
			seen[key].holders = append(seen[key].holders, it)
			seen[key].parts = append(seen[key].parts, i)
		}
	}
	for _, s := range all {
		if len(s.holders) > 1 {
			shared = append(shared, s)
		}
	}
	return shared
}

// copiesOf returns the copies between items that have their places.
func copiesOf(parts [][]item) (copies []Copy) {
	for i := range parts {
		for k := range parts[i] {
			if it := &parts[i][k]; it.copied {
				copies = append(copies, Copy{From: it.shared.reader().placed, To: it.placed})
			}
		}
	}
	return copies
}

func (s *sharedItem) reader() *item {
	for _, it := range s.holders {
		if !it.copied {
			return it
		}
	}
	return nil
}
