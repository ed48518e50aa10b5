package pcie

// A MapKind is how one device's requests reach another's window, as in Linux.
type MapKind uint8

const (
	// NotSupported: Linux refuses (-EREMOTEIO).
	NotSupported MapKind = iota
	// BusAddr: a switch forwards them, by bus address and without IOMMU.
	BusAddr
	// ThroughHostBridge: they go to the root and are mapped as those to host memory.
	ThroughHostBridge
)

// Peers returns how requests of client reach provider, and their distance: 0 for the
// same function, 2 in one slot, 4 below one switch, more for each hop. It is symmetric.
func Peers(client, provider *Function) (kind MapKind, distance int) {
	_, meet, distance := route(client, provider)
	switch {
	case meet:
		return BusAddr, distance
	case forwards(client, provider):
		return ThroughHostBridge, distance
	}
	return NotSupported, distance
}

// route reports whether requests between the two meet below the root. They do in one
// slot or at a switch; top is the lowest switch above both, if any.
func route(a, b *Function) (top *Switch, meet bool, distance int) {
	if a.f != b.f {
		return nil, false, 0
	}
	if a == b {
		return a.slot.sw, true, 0
	}
	redirect := false // between a and this level
	up := 0           // steps from a to its slot at this level
	for s := a.slot; s != nil; s = s.above() {
		up++
		redirect = redirect || s.acs.Load()
		over, down := redirect, 0
		for r := b.slot; r != nil; r = r.above() {
			down++
			over = over || r.acs.Load()
			switch {
			case r == s:
				return s.sw, !over, up + down
			case r.sw != nil && r.sw == s.sw:
				return s.sw, !over, up + down + 2
			}
			down++
		}
		up++
	}
	return nil, false, up + depth(b)
}

// depth returns the steps from a function to beyond its root port.
func depth(fn *Function) (n int) {
	for s := fn.slot; s != nil; s = s.above() {
		n += 2
	}
	return n
}

// forwards reports whether the root forwards requests between the two.
func forwards(a, b *Function) bool {
	x, y := a.slot.host, b.slot.host
	switch {
	case x.f != y.f:
		return false
	case x == y:
		return x.forward != ForwardNone
	}
	return x.forward == ForwardAll && y.forward == ForwardAll
}
