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
	blocks := route.Use{Route: route.NVFS, Block: 4096}
	for _, tt := range []struct {
		name     string
		uses     []route.Use
		size     int64
		declined []*route.Decline
		direct   bool
		answer   string
		next     *route.Decline
	}{
		{"direct", []route.Use{blocks, {Route: route.Bar}, {Route: route.Ring}}, 4096, []*route.Decline{vendor}, true, "Direct: the drive moves", nil},
		{"the best fix", []route.Use{{Route: route.Ring}}, 1 << 20, []*route.Decline{vendor, nvfs, bar}, false, "Not direct: the data goes once through pinned host memory (route ring).", nvfs},
		{"nothing better", []route.Use{{Route: route.Bar}}, 0, []*route.Decline{{Route: route.Ring, Fix: "none"}}, false, "Not direct: the processor stores", nil},
		{"small reads apart", []route.Use{{Route: route.Bar}, {Route: route.Ring}}, 1 << 20, []*route.Decline{nvfs}, false, "Not direct: the data goes once through pinned host memory (route ring). Small reads", nvfs},
		{"a file smaller than a block", []route.Use{blocks, {Route: route.Bar}, {Route: route.Ring}}, 1000, nil, false, "Not direct: the processor stores the data straight into GPU memory, through BAR1 (route bar). The file is smaller than a block of route nvfs, which moves larger ones. If that route is required, it moves this one, too: slower, in a whole block.", nil},
		{"a directory", []route.Use{blocks, {Route: route.Ring}}, 0, nil, true, "Direct: the drive moves", nil},
		{"none", nil, 0, nil, false, "Not direct: no route is usable", nil},
	} {
		v := verdict(tt.uses, tt.size, tt.declined)
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
