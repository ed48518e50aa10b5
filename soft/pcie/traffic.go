package pcie

import "sync/atomic"

// A link connects a device or a switch to the port above it.
type link struct{ up, down atomic.Uint64 }

// Traffic is bytes over a link.
type Traffic struct{ Up, Down uint64 }

// HostTraffic is bytes that devices moved from and to host memory.
type HostTraffic struct{ Read, Written uint64 }

// HostTraffic returns the bytes that devices moved from and to host memory.
func (f *Fabric) HostTraffic() HostTraffic {
	return HostTraffic{f.hostRead.Load(), f.hostWrit.Load()}
}

// Traffic returns the bytes over the device's link.
func (fn *Function) Traffic() Traffic {
	return Traffic{fn.link.up.Load(), fn.link.down.Load()}
}

// count adds n bytes to every link between fn and the owner of the memory.
func (fn *Function) count(p part, n uint64, d Dir) {
	fn.carry(p.top, n, d == Write)
	switch owner := p.window.owner; {
	case owner != nil:
		owner.carry(p.top, n, d == Read)
	case d == Read:
		fn.f.hostRead.Add(n)
	default:
		fn.f.hostWrit.Add(n)
	}
}

// carry counts on the links from fn up to a switch, or to the root.
func (fn *Function) carry(top *Switch, n uint64, up bool) {
	fn.link.add(n, up)
	for s := fn.slot; s.sw != nil && s.sw != top; s = s.sw.slot {
		s.sw.link.add(n, up)
	}
}

func (l *link) add(n uint64, up bool) {
	if up {
		l.up.Add(n)
		return
	}
	l.down.Add(n)
}
