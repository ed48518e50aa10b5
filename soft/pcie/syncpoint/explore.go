package syncpoint

import (
	"fmt"
	"strings"
)

// Explore runs actors in every order in which they can pass the points whose names
// begin with prefix; other points stop no one. scene returns the actors of one run,
// always the same, and check checks the result. It returns the number of orders.
//
// settle is as for [Points.Run].
func (p *Points) Explore(prefix string, settle func(), scene func() []func(), check func(trace []string) error) (orders int, err error) {
	var path []branch
	for {
		step := 0
		pick := func(n int) int {
			if step == len(path) {
				path = append(path, branch{width: n})
			}
			b := path[step]
			step++
			if b.width != n {
				err = fmt.Errorf("step %d had %d continuations and now has %d: the actors differ", step, b.width, n)
			}
			return min(b.taken, n-1)
		}
		trace, stuck := p.run(prefix, pick, settle, scene())
		orders++
		for _, e := range []error{stuck, err} {
			if e != nil {
				return orders, e
			}
		}
		if err := check(trace); err != nil {
			return orders, fmt.Errorf("%w, after %s", err, strings.Join(trace, ", "))
		}
		if path = advance(path); path == nil {
			return orders, nil
		}
	}
}

// A branch is a step with several possible continuations, and the one taken.
type branch struct{ taken, width int }

// advance returns the next order: the last branch with a continuation left takes it.
func advance(path []branch) []branch {
	for n := len(path); n > 0; n-- {
		if b := &path[n-1]; b.taken+1 < b.width {
			b.taken++
			return path[:n]
		}
	}
	return nil
}
