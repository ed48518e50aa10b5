package route

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// For builds the ladder of a GPU from what the machine has. os is where the
// probes look for nodes and modules.
func For(device gpu.Device, os dev.OS) (*Ladder, error) {
	routes := []Route{NewRing(device), NewMapped(device), NewHost(device)}
	var absent []*Decline
	if n, d := findNVFS(device, os); d != nil {
		absent = append(absent, d)
	} else {
		routes = append(routes, n)
	}
	if p, d := newP2PDMA(device, os); d != nil {
		absent = append(absent, d)
	} else {
		routes = append(routes, p)
	}
	if v, d := findVendor(device, os); d != nil {
		absent = append(absent, d)
	} else {
		routes = append(routes, v)
	}
	if b, d := NewBar(device, os); d != nil {
		absent = append(absent, d)
	} else {
		routes = append(routes, b)
	}
	l := NewLadder(routes, absent)
	l.ceiling = ceilings.on(linkOf(device.Info(), os.FS()))
	return l, nil
}
