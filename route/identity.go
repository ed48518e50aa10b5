package route

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
)

// An Identity says what a measurement is true of. When any of it changes, the
// measurement is worth nothing.
type Identity struct {
	Method  int    `json:"method"` // of measuring
	GPU     string `json:"gpu"`    // UUID
	Driver  string `json:"driver"`
	Kernel  string `json:"kernel"`
	FS      string `json:"file_system"`
	Dev     string `json:"device"`
	Callers int    `json:"callers"` // side by side, as many as cores allow
}

const borderMethod = 2

func identify(info gpu.Info, root fs.FS, f *storage.File, callers int) Identity {
	return Identity{
		Method: borderMethod, GPU: info.UUID.String(), Driver: driverVersion(root), Kernel: kernelRelease(),
		FS: f.Facts.FS, Dev: f.Facts.Dev, Callers: callers,
	}
}

// driverVersion is what NVIDIA's kernel module says of itself; "" where there is
// none.
func driverVersion(root fs.FS) string {
	text, err := fs.ReadFile(root, "proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	return string(line)
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// A borderCache keeps what was measured, in memory and in a file. That the file
// cannot be read or written costs a measurement, no more.
type borderCache struct {
	path string // empty for none

	mu    sync.Mutex
	known map[Identity]*Border // nil before the file was read
}

// borders is the cache of this user.
var borders = &borderCache{path: cachePath("borders.json")}

// cachePath is where a file of measurements lies; "" where there is no place for
// it.
func cachePath(name string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "culvert", name)
}

// get returns what is known, or finds it out with measure, which is called once
// at a time.
func (c *borderCache) get(id Identity, measure func() *Border) *Border {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = c.load()
	}
	if b := c.known[id]; b != nil {
		return b
	}
	b := measure()
	if b != nil {
		c.known[id] = b
		c.save()
	}
	return b
}

// load reads the file. Entries that cannot be right are left out.
func (c *borderCache) load() map[Identity]*Border {
	known := map[Identity]*Border{}
	text, err := os.ReadFile(c.path)
	if err != nil {
		return known
	}
	var list []*Border
	if json.Unmarshal(text, &list) != nil {
		return known
	}
	for _, b := range list {
		if b != nil && b.Max >= borderLow && b.Max <= borderHigh {
			known[b.Identity] = b
		}
	}
	return known
}

// save replaces the file, if it can.
func (c *borderCache) save() {
	list := make([]*Border, 0, len(c.known))
	for _, b := range c.known {
		list = append(list, b)
	}
	replaceJSON(c.path, list)
}

// replaceJSON replaces a file of measurements, if it can: what is not kept is
// measured again.
func replaceJSON(path string, list any) {
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil || path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(text, '\n'))
	if cerr := f.Close(); err == nil && cerr == nil {
		_ = os.Rename(f.Name(), path)
	}
}
