package check

import (
	"context"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/machine"
)

// lookObject finds the routes between an object and GPU i. Where a file system would
// be, its store is named.
func lookObject(m *machine.Machine, drv *cufile.Driver, url string, i int) (*Path, error) {
	o, err := object.Open(context.Background(), url)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	h, err := drv.RegisterSource(o)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	plan, err := h.Plan(i)
	if err != nil {
		return nil, err
	}
	p := &Path{File: o.Name(), GPU: i, Size: o.Info().Size, machine: m}
	p.Facts = storage.Facts{FS: o.TakeOrigin().Store, Direct: storage.Direct{Source: "an object has no descriptor"}}
	p.setPlan(plan)
	return p, nil
}
