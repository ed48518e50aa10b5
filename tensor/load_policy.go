package tensor

// worthRegistering decides whether a load registers its memory on a GPU. direct
// reports whether a drive can fill the memory itself, which needs registration.
//
// Otherwise registration only maps the memory for the CPU: 2 ms per GiB, and as
// much to undo. It saves a few microseconds per read that is small enough for the
// mapping. A model of many GiB in large reads loads faster without.
func worthRegistering(p *Plan, direct bool) bool {
	const (
		small  = 256 << 10
		perGiB = 1000 // small reads that pay for mapping 1 GiB
	)
	if direct {
		return true
	}
	var reads int64
	for i := range p.Reads {
		if p.Reads[i].Len <= small {
			reads += p.Reads[i].Count
		}
	}
	return reads > 0 && reads >= p.Totals().Device>>30*perGiB
}
