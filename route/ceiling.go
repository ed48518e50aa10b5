package route

import (
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/dev"
)

// A Link is what a ceiling is true of: the way between host memory and a GPU.
type Link struct {
	GPU    string `json:"gpu"` // UUID
	Driver string `json:"driver"`
	Kernel string `json:"kernel"`
}

func linkOf(info gpu.Info, root fs.FS) Link {
	return Link{info.UUID.String(), driverVersion(root), kernelRelease()}
}

// A ceiling is how many bytes per second one large copy of pinned memory moves,
// by direction; 0 where nobody has measured. No route through host memory is
// faster.
type ceiling [2]atomic.Uint64 // bits of a float64

func (c *ceiling) of(d Dir) float64 {
	if c == nil {
		return 0
	}
	return math.Float64frombits(c[d].Load())
}

// KeepCeiling remembers a ceiling that was measured. The receipts of this process
// and of later ones give their share of it.
func KeepCeiling(device gpu.Device, os dev.OS, d Dir, bytesPerSecond float64) {
	ceilings.keep(linkOf(device.Info(), os.FS()), d, bytesPerSecond)
}

// A ceilingCache keeps what was measured, in memory and in a file. That the file
// cannot be read or written costs the receipts a figure, no more.
type ceilingCache struct {
	path string // empty for none

	mu    sync.Mutex
	known map[Link]*ceiling // nil before the file was read
}

// ceilings is the cache of this user.
var ceilings = &ceilingCache{path: cachePath("ceilings.json")}

// on is the ceiling of a link, which may become known later.
func (c *ceilingCache) on(l Link) *ceiling {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entry(l)
}

// entry finds or makes an entry. The caller holds mu.
func (c *ceilingCache) entry(l Link) *ceiling {
	if c.known == nil {
		c.known = map[Link]*ceiling{}
		c.load()
	}
	if c.known[l] == nil {
		c.known[l] = new(ceiling)
	}
	return c.known[l]
}

func (c *ceilingCache) keep(l Link, d Dir, bps float64) {
	if !(bps > 0) || math.IsInf(bps, 0) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry(l)[d].Store(math.Float64bits(bps))
	c.save()
}

// A ceilingEntry is a line of the file.
type ceilingEntry struct {
	Link
	Read  float64 `json:"read_bytes_per_second,omitempty"`
	Write float64 `json:"write_bytes_per_second,omitempty"`
}

// load reads the file. Figures that cannot be right are left out.
func (c *ceilingCache) load() {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return
	}
	var list []ceilingEntry
	if json.Unmarshal(text, &list) != nil {
		return
	}
	for _, e := range list {
		known := new(ceiling)
		known[Read].Store(math.Float64bits(max(e.Read, 0)))
		known[Write].Store(math.Float64bits(max(e.Write, 0)))
		c.known[e.Link] = known
	}
}

func (c *ceilingCache) save() {
	var list []ceilingEntry
	for l, known := range c.known {
		if e := (ceilingEntry{l, known.of(Read), known.of(Write)}); e.Read > 0 || e.Write > 0 {
			list = append(list, e)
		}
	}
	replaceJSON(c.path, list)
}
