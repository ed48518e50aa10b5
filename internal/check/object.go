package check

import (
	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
)

// lookObject finds the routes between an object and GPU i. Where a file system would
// be, its store is named.
func lookObject(m *machine.Machine, drv *cufile.Driver, url string, i int) (*Path, error) {
	o, err := object.Open(object.Context(), url)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return LookSource(m, drv, o, o.Info().Size, o.TakeOrigin().Store, i)
}

// LookSource finds the routes between a source without a file of this kernel and GPU i.
// place names what has its bytes: a store, a drive, a host.
func LookSource(m *machine.Machine, drv *cufile.Driver, s cufile.Source, size int64, place string, i int) (*Path, error) {
	h, err := drv.RegisterSource(s)
	if err != nil {
		return nil, err
	}
	p := &Path{File: s.Name(), GPU: i, Size: size, machine: m}
	p.Facts = storage.Facts{FS: place, Direct: storage.Direct{Source: "it has no descriptor"}}
	return p, p.addRoutes(h, i)
}
