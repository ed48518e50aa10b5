package cufile

import (
	"context"
	"log/slog"

	"github.com/culvert-io/culvert/route"
)

// An Option changes how a driver works.
type Option func(*Driver)

// WithLogger has the driver log what it does, at the level debug: files and
// buffers that are registered, the plan that was found for a file and why it is
// not a better one, and transfers that took another route than the plan's best.
// Without it, or with nil, nothing is logged anywhere.
func WithLogger(l *slog.Logger) Option {
	return func(d *Driver) {
		if l != nil {
			d.log = l
		}
	}
}

// logPlan tells which routes a file has.
func (f *File) logPlan(at place, p *route.Plan) {
	if !f.drv.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	f.drv.log.Debug("cufile: plan", "file", f.st.Name, "gpu", int(at)-1, "best", p.Best(), "usable", p.Usable(), "declined", p.Declined())
}

// logFallback tells that a transfer did not take the best route of its plan.
func (f *File) logFallback(ctx context.Context, p *route.Plan, r *route.Receipt) {
	if r.Bytes == 0 || r.Route == p.Best() || !f.drv.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	why := r.Declined[p.Best()]
	if why == nil {
		return // part of it did
	}
	f.drv.log.DebugContext(ctx, "cufile: fallback", "file", f.st.Name, "direction", r.Dir, "bytes", r.Bytes, "route", r.Route, "declined", why)
}
