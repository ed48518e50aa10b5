package cufileapi

import (
	"sync"

	"github.com/culvert-io/culvert/clib/internal/handle"
	"github.com/culvert-io/culvert/clib/internal/lease"
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
)

// leases are what the driver lends to C. Package cufile knows files, C handles.
type leases struct {
	table *lease.Table
	ids   sync.Map // handle.ID by *cufile.File
}

// PublishLeases makes the driver publish leases in slots that C reads. It must be
// called before any other method.
func (a *API) PublishLeases(s *lease.Slots) { a.leases = &leases{table: lease.NewTable(s)} }

// know notes the handle of a file, before C has it.
func (l *leases) know(f *cufile.File, id handle.ID) {
	if l != nil {
		l.ids.Store(f, id)
	}
}

// forget ends what know began, after the file has ended.
func (l *leases) forget(f *cufile.File) {
	if l != nil {
		l.ids.Delete(f)
	}
}

// Grant publishes a lease. C cannot ask for a file that has no handle yet.
func (l *leases) Grant(g cufile.Lease) {
	if id, ok := l.ids.Load(g.File); ok {
		l.table.Grant(id.(handle.ID), &g)
	}
}

// RevokeFile is called when the file is closed or its routes change.
func (l *leases) RevokeFile(f *cufile.File) {
	if id, ok := l.ids.Load(f); ok {
		l.table.RevokeFile(id.(handle.ID))
	}
}

// RevokeBuffer is called when the buffer is deregistered.
func (l *leases) RevokeBuffer(base gpu.Addr) { l.table.RevokeBuffer(base) }

// pause makes every read enter Go, where statistics are kept.
func (l *leases) pause(on bool) {
	switch {
	case l == nil:
	case on:
		l.table.Pause()
	default:
		l.table.Resume()
	}
}
