package pcie

// A MapKind says how one device's requests get to another's window. The three
// are Linux's.
type MapKind uint8

const (
	// NotSupported means that Linux refuses (-EREMOTEIO).
	NotSupported MapKind = iota
	// BusAddr means a switch sends them straight on: they carry bus addresses
	// and see no IOMMU.
	BusAddr
	// ThroughHostBridge means they go up to the root and are mapped as those to
	// host memory are.
	ThroughHostBridge
)

var mapKindNames = [...]string{"not supported", "bus address", "through host bridge"}

func (k MapKind) String() string { return mapKindNames[k] }

// Peers says how requests of client reach provider, and how many steps apart
// they are: 0 for the same function, 2 for functions in one slot, 4 below one
// switch, and more for each hop. It is symmetric.
func Peers(client, provider *Function) (kind MapKind, distance int) {
	meet, distance := route(client, provider)
	switch {
	case meet:
		return BusAddr, distance
	case forwards(client, provider):
		return ThroughHostBridge, distance
	}
	return NotSupported, distance
}

// route reports whether requests between the two can turn round below the root.
func route(a, b *Function) (meet bool, distance int) {
	if a.f != b.f {
		return false, 0
	}
	if a == b {
		return true, 0
	}
	redirect := false // on the way from a up to where we are
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
				return !over, up + down
			case r.sw != nil && r.sw == s.sw:
				return !over, up + down + 2
			}
			down++
		}
		up++
	}
	return false, up + depth(b)
}

// depth is the number of steps from a function to beyond its root port.
func depth(fn *Function) (n int) {
	for s := fn.slot; s != nil; s = s.above() {
		n += 2
	}
	return n
}

// forwards reports whether the root passes requests on between the two.
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
