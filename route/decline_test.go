package route

import "testing"

// The error of a required route has its own reasons; those of others only if it has none.
func TestRequireErrorHasTheReasonOfTheRoute(t *testing.T) {
	vendor, nvfs := &Decline{Route: Vendor, Test: "machine", Evidence: "a"}, &Decline{Route: NVFS, Test: "alignment", Evidence: "b"}
	for _, c := range []struct {
		want ID
		text string
	}{
		{NVFS, "required route nvfs is not available (best: bar); nvfs: alignment: b"},
		{P2PDMA, "required route p2pdma is not available (best: bar); vendor: machine: a; nvfs: alignment: b"},
	} {
		if err := (&RequireError{Want: c.want, Got: Bar, Declined: []*Decline{vendor, nvfs}}); err.Error() != c.text {
			t.Errorf("%v, want %s", err, c.text)
		}
	}
}
