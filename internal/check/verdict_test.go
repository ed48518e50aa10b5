package check

import (
	"strings"
	"testing"

	"github.com/culvert-io/culvert/route"
)

func TestVerdict(t *testing.T) {
	vendor := &route.Decline{Route: route.Vendor, Test: "library", Evidence: "missing"}
	nvfs := &route.Decline{Route: route.NVFS, Test: "kernel module", Evidence: "/dev/nvidia-fs0: missing", Fix: "modprobe nvidia-fs"}
	bar := &route.Decline{Route: route.Bar, Test: "driver", Evidence: "unknown branch", Fix: "another driver"}
	for _, tt := range []struct {
		name     string
		best     route.ID
		uses     []route.ID
		declined []*route.Decline
		direct   bool
		answer   string
		next     *route.Decline
	}{
		{"direct", route.NVFS, nil, []*route.Decline{vendor}, true, "Direct: the drive moves", nil},
		{"the best fix", route.Ring, nil, []*route.Decline{vendor, nvfs, bar}, false, "Not direct: the data goes once through pinned host memory (route ring).", nvfs},
		{"nothing better", route.Bar, nil, []*route.Decline{{Route: route.Ring, Fix: "none"}}, false, "Not direct: the processor stores", nil},
		{"small reads apart", route.Bar, []route.ID{route.Bar, route.Ring}, []*route.Decline{nvfs}, false, "Not direct: the data goes once through pinned host memory (route ring). Small reads", nvfs},
		{"none", route.None, nil, nil, false, "Not direct: no route is usable", nil},
	} {
		var uses []route.Use
		for _, id := range tt.uses {
			uses = append(uses, route.Use{Route: id})
		}
		v := verdict(tt.best, uses, tt.declined)
		if v.Direct != tt.direct || !strings.HasPrefix(v.Answer, tt.answer) || v.Next != tt.next {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
	for _, name := range route.Names()[1:] {
		id, err := route.Parse(name)
		if err != nil || ways[id] == "" {
			t.Errorf("no words for route %s", name)
		}
	}
}
