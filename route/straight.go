package route

import (
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// Straight says which reads of a plan are one pread and nothing else: those of
// fewer than below bytes into the registered buffer at base, which the CPU sees
// as mem until it is deregistered. below is 0 where no read is.
//
// Bar must be the first rung, since one above it would have to be asked about
// every request; and a file that was opened with O_DIRECT is asked what of it is
// in the page cache. From crowdLen on it depends on what else is under way.
func (p *Plan) Straight(f *storage.File, base gpu.Addr) (mem []byte, below uint64) {
	if len(p.usable) == 0 || f.CallerDirect() {
		return nil, 0
	}
	var bar *BarRoute
	switch r := p.usable[0].(type) {
	case *BarRoute:
		bar = r
	case *barUpTo:
		bar = r.BarRoute
	default:
		return nil, 0
	}
	w := (*bar.wins.Load())[base]
	if w == nil {
		return nil, 0
	}
	return w.Bytes(), crowdLen
}
