package route

// A Plan lists the routes between one file and one GPU.
type Plan struct {
	Uses     []Use      // usable routes, best first
	Declined []*Decline // the others, best first, with reasons
}

// A Use is a usable route.
type Use struct {
	Route ID     `json:"route"`
	For   string `json:"for,omitempty"` // the requests that it supports; empty for all
	// Direct means that the drive moves the bytes and none enter host memory.
	Direct bool `json:"-"`
	// Registered means that only registered buffers can use the route.
	Registered bool `json:"-"`
	// Block is the unit in which the route moves data; 0 for any range.
	Block int64 `json:"-"`
}

// Best is the best usable route.
func (p *Plan) Best() ID {
	if len(p.Uses) == 0 {
		return None
	}
	return p.Uses[0].Route
}

// Usable lists the usable routes, best first.
func (p *Plan) Usable() []ID {
	ids := make([]ID, len(p.Uses))
	for i, u := range p.Uses {
		ids[i] = u.Route
	}
	return ids
}

// Taken lists the routes that requests to GPU memory take: the usable ones down to
// the first that supports every request.
func (p *Plan) Taken() []Use {
	for i, u := range p.Uses {
		if u.For == "" {
			return p.Uses[:i+1]
		}
	}
	return p.Uses
}

// Require returns a *RequireError unless the best usable route is id or better.
func (p *Plan) Require(id ID) error {
	if best := p.Best(); best != None && best <= id {
		return nil
	}
	e := &RequireError{Want: id, Got: p.Best()}
	for _, d := range p.Declined {
		if d.Route <= id {
			e.Declined = append(e.Declined, d)
		}
	}
	return e
}
