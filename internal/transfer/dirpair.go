package transfer

import (
	"errors"
	"sync"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// A dirPair is a directory of a tree that is open in the source and in the destination,
// while files of it are copied. A source of objects has no directories.
type dirPair struct {
	src, dst *atomicfile.Dir
	rel      string
	users    int
}

// dirPairs opens each directory once for all files that use it at a time.
type dirPairs struct {
	src, dst *atomicfile.Dir
	mu       sync.Mutex
	open     map[string]*dirPair
}

// take returns the pair of a path below the tree, until release.
func (d *dirPairs) take(rel string) (*dirPair, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.open[rel]
	if p == nil {
		var err error
		if p, err = d.openPair(rel); err != nil {
			return nil, err
		}
		d.open[rel] = p
	}
	p.users++
	return p, nil
}

func (d *dirPairs) openPair(rel string) (*dirPair, error) {
	dst, err := d.dst.Open(rel)
	if err != nil || d.src == nil {
		return &dirPair{dst: dst, rel: rel}, err
	}
	src, err := d.src.Open(rel)
	if err != nil {
		return nil, errors.Join(err, dst.Close())
	}
	return &dirPair{src: src, dst: dst, rel: rel}, nil
}

func (d *dirPairs) release(p *dirPair) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	delete(d.open, p.rel)
	if p.src != nil {
		p.src.Close()
	}
	p.dst.Close()
}
