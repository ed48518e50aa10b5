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

// Lend publishes a loan. A file that has no handle yet cannot be asked for.
func (l *leases) Lend(loan cufile.Loan) {
	if id, ok := l.ids.Load(loan.File); ok {
		l.table.Lend(id.(handle.ID), &loan)
	}
}

// RecallFile is called when the file ends or its routes change.
func (l *leases) RecallFile(f *cufile.File) {
	if id, ok := l.ids.Load(f); ok {
		l.table.RecallFile(id.(handle.ID))
	}
}

// RecallBuffer is called when the buffer ends.
func (l *leases) RecallBuffer(base gpu.Addr) { l.table.RecallBuffer(base) }

// pause has every read come to Go, where statistics are kept.
func (l *leases) pause(on bool) {
	switch {
	case l == nil:
	case on:
		l.table.Pause()
	default:
		l.table.Resume()
	}
}
