package ladder

import (
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/route"
)

// A value that cannot be understood is an error: the route would stay on.
func TestSwitch(t *testing.T) {
	for _, c := range []struct {
		value string
		off   []route.ID
		err   string
	}{
		{"", nil, ""},
		{"-bar", []route.ID{route.Bar}, ""},
		{" -ring , -bar,-ring,", []route.ID{route.Bar, route.Ring}, ""},
		{"bar", nil, "must be a route with a minus"},
		{"-barr", nil, "unknown route"},
		{"-host", nil, "cannot be switched off"},
		{"-bar,nvfs", []route.ID{route.Bar}, "must be a route with a minus"},
	} {
		t.Setenv(RoutesSwitch, c.value)
		err := CheckSwitch()
		if got := SwitchedOff(); !slices.Equal(got, c.off) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, %v", c.value, got, err)
		}
	}
}
