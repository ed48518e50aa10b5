package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/bench"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/route"
)

var benchKinds = map[string]gpu.Kind{"device": gpu.KindDevice, "virtual": gpu.KindVirtual, "host": gpu.KindHost, "managed": gpu.KindManaged}

// workloads are those of a command line without --job.
func (o *benchOptions) workloads(file string) ([]bench.Workload, error) {
	pattern, err := bench.ParsePattern(o.pattern)
	if err != nil {
		return nil, err
	}
	blocks, err := human.ParseSizes(o.sizes)
	if err != nil {
		return nil, fmt.Errorf("--bs %s: %w", o.sizes, err)
	}
	threads, err := human.ParseSizes(o.threads)
	if err != nil || slices.Max(threads) > 1024 {
		return nil, fmt.Errorf("--threads %s: want numbers from 1 to 1024", o.threads)
	}
	w, err := o.workload(pattern, file)
	if err != nil {
		return nil, err
	}
	if err := o.limitBytes(&w, slices.Max(blocks)); err != nil {
		return nil, err
	}
	var list []bench.Workload
	for _, w.Block = range blocks {
		for _, n := range threads {
			w.Threads = int(n)
			list = append(list, w)
		}
	}
	return list, nil
}

// workload is what all blocks and numbers of threads have in common.
func (o *benchOptions) workload(pattern bench.Pattern, file string) (w bench.Workload, err error) {
	kind, ok := benchKinds[o.mem]
	switch {
	case !ok:
		return w, o.unknownKind()
	case o.time <= 0:
		return w, fmt.Errorf("--time %v must be positive", o.time)
	case o.batch < 1 || o.repeat < 1:
		return w, errors.New("--batch and --repeat must be at least 1")
	case o.mixGiven && !pattern.Mixed():
		return w, fmt.Errorf("--mix needs --rw rw or --rw randrw, not %s", o.pattern)
	case pattern.Writes() && !o.overwrite:
		return w, fmt.Errorf("--rw %s overwrites %s: use --overwrite to confirm", o.pattern, file)
	}
	w = bench.Workload{Pattern: pattern, Batch: o.batch, Kind: kind, Register: !o.noRegister && kind != gpu.KindManaged, Cold: o.cold, Verify: o.verify, Time: o.time}
	if pattern.Mixed() {
		w.ReadPercent = o.mix
	}
	if err := w.Check(); err != nil {
		return w, err
	}
	if w.Limit, err = human.ParseRate(o.limit); err != nil {
		return w, fmt.Errorf("--limit-rate: %w", err)
	}
	return w, nil
}

func (o *benchOptions) unknownKind() error {
	return fmt.Errorf("unknown kind of memory %q (want device, virtual, host or managed)", o.mem)
}

// limitBytes sets the bytes of --size, which replace the time.
func (o *benchOptions) limitBytes(w *bench.Workload, largest int64) (err error) {
	if o.size == "" {
		return nil
	}
	if w.Bytes, err = human.ParseSize(o.size); err != nil {
		return fmt.Errorf("--size %s: %w", o.size, err)
	}
	if call := largest * int64(o.batch); w.Bytes < call {
		return fmt.Errorf("--size %s must be at least one call, %s", o.size, human.Size(call))
	}
	w.Time = 0
	return nil
}

// methods are the routes to measure one by one, then the peers.
func (o *benchOptions) methods(b *bench.Bench) (list []bench.Method, err error) {
	routes := []route.ID{route.None}
	switch o.routes {
	case "":
	case "all":
		if routes, err = b.Routes(); err != nil {
			return nil, err
		}
	default:
		routes = nil
		for name := range strings.SplitSeq(o.routes, ",") {
			id, err := route.Parse(name)
			if err != nil {
				return nil, usageError{err}
			}
			routes = append(routes, id)
		}
	}
	for _, id := range routes {
		list = append(list, bench.Method{Route: id, Async: o.async})
	}
	for _, name := range o.peers {
		p := bench.Peer(name)
		if err := p.Check(); err != nil {
			return nil, usageError{err}
		}
		list = append(list, bench.Method{Peer: p})
	}
	return list, nil
}
