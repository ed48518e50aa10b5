package bench

import (
	"context"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/internal/object"
	"github.com/culvert-io/culvert/route"
)

// OpenObject prepares the object at a URL for measuring. Ending ctx ends its requests.
func OpenObject(ctx context.Context, drv *cufile.Driver, dev int, url string, soft bool) (*Bench, error) {
	g, err := drv.Device(dev)
	if err != nil {
		return nil, err
	}
	o, err := object.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	return &Bench{drv: drv, dev: g, name: o.Name(), object: o, size: o.Info().Size, soft: soft, ceilings: map[bool]float64{}}, nil
}

// get is the blockIO of an object: one request, as a program makes it that only reads.
func (b *Bench) get(_ route.Dir, p []byte, off int64) (int64, error) {
	n, err := b.object.Get(p, off)
	return int64(n), err
}
