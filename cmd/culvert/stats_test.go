package main

import (
	"strings"
	"testing"
)

// The file whose transfers took longest comes first.
func TestStatsSlowestFileFirst(t *testing.T) {
	r := statsResult{Files: []statsFile{
		{Name: "quick", statsSums: statsSums{Seconds: 0.1}},
		{Name: "slow", statsSums: statsSums{Seconds: 2}},
	}}
	text := r.String()
	slow, quick := strings.Index(text, "file     slow"), strings.Index(text, "file     quick")
	if slow < 0 || quick < slow {
		t.Errorf("printed\n%s", text)
	}
	if !strings.Contains(text, "errors 0, 2 s in transfers; by") {
		t.Errorf("no time of the file in\n%s", text)
	}
	if r.Files[0].Name != "quick" {
		t.Error("printing changed the order in the result")
	}
}

// Transfers that failed have no route: they are counted as errors, not by a route "none".
func TestStatsNamesRoutes(t *testing.T) {
	if got := routeNames([]statsRoute{{Route: "none"}, {Route: "nvfs"}, {Route: "ring"}}); got != "nvfs,ring" {
		t.Errorf("got %q", got)
	}
	if got := routeNames(nil); got != "-" {
		t.Errorf("got %q", got)
	}
}
