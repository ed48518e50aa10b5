package registration

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/rdma"
)

// What is the kind of the results in the cache of package tune.
const What = "rdma-registration"

// subject is the adapter and the GPU. root has the directory /proc.
func subject(dev rdma.Device, g gpu.Info, root fs.FS) tune.Subject {
	s := tune.Link(g, root)
	s.Dev = dev.Provider() + " " + dev.Info().Name
	return s
}

// Store keeps results for later processes.
func Store(c *tune.Cache, dev rdma.Device, g gpu.Info, root fs.FS, results []Result) error {
	return c.Store(What, subject(dev, g, root), results)
}

// Known is how to register memory of a GPU with an adapter: in the order that was measured,
// or without a measurement the built-in one. It measures nothing.
func Known(c *tune.Cache, dev rdma.Device, g gpu.Info, root fs.FS) rdma.GPUOptions {
	var results []Result
	if !c.Load(What, subject(dev, g, root), &results) {
		return rdma.GPUOptions{}
	}
	return Order(results)
}

// equal is the ratio of rates that counts as equal: then the built-in order holds.
const equal = 1.05

// Order is the order of the direct methods by their rates. Those that did not work come
// last: the machine may have changed. Staging never becomes direct by being fast; its rate
// is evidence only.
func Order(results []Result) rdma.GPUOptions {
	rate := map[rdma.Method]float64{}
	var why []string
	for _, r := range results {
		rate[r.Method] = r.Rate
		if r.Rate > 0 {
			why = append(why, fmt.Sprintf("%s %s", r.Method, human.Rate(r.Rate)))
		} else {
			why = append(why, fmt.Sprintf("%s does not work", r.Method))
		}
	}
	var order []rdma.Method
	for _, m := range rdma.DirectMethods() {
		at := slices.IndexFunc(order, func(o rdma.Method) bool { return rate[m] > rate[o]*equal })
		if at < 0 {
			at = len(order)
		}
		order = slices.Insert(order, at, m)
	}
	return rdma.GPUOptions{Methods: order, Evidence: "measured: " + strings.Join(why, ", ")}
}
