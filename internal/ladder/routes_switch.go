package ladder

import (
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/env"
	"github.com/culvert-io/culvert/route"
)

// RoutesSwitch is the variable that switches routes off: "-bar,-ring". The route host
// cannot be switched off, since every request needs one that accepts it.
const RoutesSwitch = "CULVERT_ROUTES"

// SwitchedOff lists the routes that the environment switches off, best first. An item
// that it does not understand switches nothing off; see [CheckSwitch].
func SwitchedOff() []route.ID {
	off, _ := parseSwitch(env.Get(RoutesSwitch))
	return off
}

// CheckSwitch returns an error for a value that cannot be understood: a route that was
// meant to be off would be on.
func CheckSwitch() error {
	_, err := parseSwitch(env.Get(RoutesSwitch))
	return err
}

func parseSwitch(text string) (off []route.ID, err error) {
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		name, minus := strings.CutPrefix(item, "-")
		id, perr := route.Parse(name)
		switch {
		case !minus:
			perr = fmt.Errorf("%q must be a route with a minus before it, such as -bar", item)
		case perr == nil && id == route.Host:
			perr = fmt.Errorf("%q: the route host cannot be switched off", item)
		}
		if perr != nil {
			err = perr
			continue
		}
		off = append(off, id)
	}
	slices.Sort(off)
	return slices.Compact(off), err
}

// switchedOff declines a route that the environment switches off.
func switchedOff(id route.ID) *route.Decline {
	return decline(id, "switch", RoutesSwitch+"="+env.Get(RoutesSwitch)+" switches the route off", "leave -"+id.String()+" out of "+RoutesSwitch)
}
