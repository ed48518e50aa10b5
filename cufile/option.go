package cufile

import (
	"context"
	"log/slog"

	"github.com/culvert-io/culvert/internal/ladder"
	"github.com/culvert-io/culvert/route"
)

// An Option changes how a driver works.
type Option func(*Driver)

// WithLogger makes the driver log at level debug: registered files and buffers, the
// route plan of a file with the reasons, transfers that did not use the best route of
// the plan, and what the ring decides. Without it, or with nil, nothing is logged.
func WithLogger(l *slog.Logger) Option {
	return func(d *Driver) {
		if l != nil {
			d.log = l
		}
	}
}

// logPlan logs the routes of a file.
func (f *File) logPlan(at location, p *ladder.Plan) {
	if !f.drv.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	d := p.Describe()
	f.drv.log.Debug("cufile: plan", "file", f.Name(), "gpu", int(at)-1, "best", d.Best(), "routes", d.Uses, "declined", d.Declined)
}

// logFallback logs a transfer that did not use the best route of its plan.
func (f *File) logFallback(ctx context.Context, p *ladder.Plan, r *route.Receipt) {
	if r.Bytes == 0 || r.Route == p.Best() || !f.drv.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	why := r.Declined[p.Best()]
	if why == nil {
		return // a part of it did
	}
	f.drv.log.DebugContext(ctx, "cufile: fallback", "file", f.Name(), "direction", r.Dir, "bytes", r.Bytes, "route", r.Route, "declined", why)
}
