package route

import (
	"errors"
	"fmt"
	"strings"
)

// A Decline says why a route was not used: which check failed, what was found, and
// what would change it.
type Decline struct {
	Route    ID     `json:"route"`
	Test     string `json:"test"`          // "kernel module"
	Evidence string `json:"evidence"`      // "/dev/nvidia-fs0: no such file or directory"
	Fix      string `json:"fix,omitempty"` // "modprobe nvidia-fs"
}

func (d *Decline) String() string {
	s := d.Route.String() + ": " + d.Test + ": " + d.Evidence
	if d.Fix != "" {
		s += " (fix: " + d.Fix + ")"
	}
	return s
}

// Declined is indexed by route; nil for a route that was not declined.
type Declined [numIDs]*Decline

// List returns the declines, best route first.
func (ds *Declined) List() []*Decline {
	list := []*Decline{}
	for _, d := range ds {
		if d != nil {
			list = append(list, d)
		}
	}
	return list
}

// A RequireError says that a required route cannot be used.
type RequireError struct {
	Want     ID
	Got      ID // the best usable route; None if the route exists but does not support the request
	Declined []*Decline
	// Software means that the machine is a software machine that nothing asked for:
	// no route of it meets a requirement.
	Software bool
}

func (e *RequireError) Error() string {
	var b strings.Builder
	switch {
	case e.Software:
		fmt.Fprintf(&b, "required route %s is not available without a GPU", e.Want)
	case e.Got == None:
		fmt.Fprintf(&b, "required route %s does not support this request", e.Want)
	default:
		fmt.Fprintf(&b, "required route %s is not available (best: %s)", e.Want, e.Got)
	}
	for _, d := range e.relevant() {
		b.WriteString("; " + d.String())
	}
	return b.String()
}

// relevant are the reasons of the required route, or all if it has none.
func (e *RequireError) relevant() []*Decline {
	var own []*Decline
	for _, d := range e.Declined {
		if d.Route == e.Want {
			own = append(own, d)
		}
	}
	if own == nil {
		return e.Declined
	}
	return own
}

var (
	// ErrFreed means that registered memory was freed, or freed and allocated again
	// for something else.
	ErrFreed = errors.New("registered memory was freed")
	// ErrNoRoute means that no route supports a request. It cannot happen while the
	// route host is usable.
	ErrNoRoute = errors.New("no route supports this request")
)
