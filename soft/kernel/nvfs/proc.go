package nvfs

import (
	"bytes"
	"fmt"
	"time"

	abi "github.com/culvert-io/culvert/internal/abi/nvfs"
	"github.com/culvert-io/culvert/soft/kernel"
)

// proc returns /proc/driver/nvidia-fs. peer_affinity is empty, as recorded: it has a
// table only with peer I/O statistics on.
func (m *Module) proc() kernel.Tree {
	text := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	return kernel.Tree{
		"version":       text("version: 2.28\n"),
		"devcount":      text(fmt.Sprintf("%d\n", abi.MaxDevices)),
		"bridges":       text(""),
		"modules":       m.modules,
		"peer_affinity": text(""),
		"peer_distance": text("gpu\t\tpeer\t\tpeerrank\tp2pdist\tlink\tgen\tnuma\tnp2p\tclass\n"),
		"stats":         m.statistics,
	}
}

func (m *Module) modules() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b []byte
	for _, s := range m.registered {
		b = fmt.Appendf(b, "%s: %s\n", s.Name(), s.Version())
	}
	return append(b, "wekafsio: 1\n"...)
}

const mib = 1 << 20

func (m *Module) statistics() []byte {
	s := &m.stats
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("GDS Version: 1.17.1.22 \nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.28.4)\nMellanox PeerDirect Supported: False\n")
	enabled := "Disabled"
	if m.cfg.RWStats {
		enabled = "Enabled"
	}
	p("IO stats: %s, peer IO stats: Disabled\nLogging level: info\n\n", enabled)
	p("Active Shadow-Buffer (MiB): %d\n", s.shadow.Load()/mib)
	p("Active Process: %d\n", s.opens.Load()/abi.MaxDevices)
	if m.cfg.RWStats {
		p("Batches\t\t\t\t: %v Avg-Submit-Latency(usec)=%d\n", &s.batches, average(s.batchTook.Load(), s.batches.ok.Load()))
	}
	s.reads.print(p, m.cfg.RWStats, "Reads", "read", "")
	p("Sparse Reads\t\t        : n=%d io=%d holes=%d pages=%d \n", s.sparse.Load(), s.sparseIO.Load(), s.holes.Load(), s.holePages.Load())
	// The page cache belongs to the host.
	s.writes.print(p, m.cfg.RWStats, "Writes", "write", " pg-cache=0 pg-cache-fail=0 pg-cache-eio=0")
	p("Mmap\t\t\t\t: %v munmap=%d\n", &s.mmap, s.munmap.Load())
	p("Bar1-map\t\t\t: %v free=%d callbacks=%d active=%d delay-frees=0\n", &s.bar1, s.frees.Load(), s.callbacks.Load(),
		s.bar1.ok.Load()-s.frees.Load()-s.callbacks.Load())
	p("Error\t\t\t\t: cpu-gpu-pages=%d sg-ext=0 dma-map=%d dma-ref=0\n", s.mixed.Load(), s.dmaMap.Load())
	p("Ops\t\t\t\t: Read=%d Write=%d BatchIO=%d\n", s.reads.active.Load(), s.writes.active.Load(), s.batchActive.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.gpus {
		p("%s : Registered_MiB=%d Cache_MiB=0 max_pinned_MiB=%d \n", g.name, g.pinned/mib, g.most/mib)
	}
	return b.Bytes()
}

func (c *counter) String() string {
	return fmt.Sprintf("n=%d ok=%d err=%d", c.n.Load(), c.ok.Load(), c.err.Load())
}

func (c *opCounter) print(p func(string, ...any), all bool, name, verb, more string) {
	if !all {
		p("%s\t\t\t\t: err=%d io_state_err=%d%s\n", name, c.err.Load(), c.stateErr.Load(), more)
		return
	}
	p("%s\t\t\t\t: %v %sMiB=%d io_state_err=%d%s\n", name, &c.counter, verb, c.bytes.Load()/mib, c.stateErr.Load(), more)
	bandwidth := int64(0)
	if took := c.took.Load(); took > 0 {
		bandwidth = int64(float64(c.bytes.Load()) / mib / (float64(took) / float64(time.Second)))
	}
	p("%s\t\t\t\t: Bandwidth(MiB/s)=%d Avg-Latency(usec)=%d\n", name, bandwidth, average(c.took.Load(), c.ok.Load()))
}

// average returns microseconds.
func average(took, n int64) int64 {
	if n == 0 {
		return 0
	}
	return took / n / int64(time.Microsecond)
}
