package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/env"
)

// Version is the version of the cache file's format.
const Version = 1

// maxAge is how long a result applies.
const maxAge = 90 * 24 * time.Hour

// A Subject is what a measurement applies to. A result is used only where all of
// it is the same.
type Subject struct {
	GPU     string `json:"gpu"` // UUID
	Driver  string `json:"driver,omitempty"`
	Kernel  string `json:"kernel"`
	FS      string `json:"file_system,omitempty"`
	Dev     string `json:"device,omitempty"`  // of the file system, or a network adapter
	Callers int    `json:"callers,omitempty"` // concurrent transfers
}

// Link is the subject of measurements between host memory and a GPU. root has the
// directory /proc.
func Link(info gpu.Info, root fs.FS) Subject {
	s := Subject{GPU: info.UUID.String()}
	if text, err := fs.ReadFile(root, "proc/driver/nvidia/version"); err == nil {
		line, _, _ := bytes.Cut(text, []byte("\n"))
		s.Driver = string(line)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		s.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return s
}

// An Entry is one measurement.
type Entry struct {
	What     string          `json:"what"` // "bar-crossover"
	Subject  Subject         `json:"subject"`
	Measured time.Time       `json:"measured"`
	Result   json.RawMessage `json:"result"`
}

// A Cache keeps measurements in a file. Its methods are safe for concurrent use;
// of two processes that store at the same moment the later one wins.
type Cache struct {
	path string // empty if there is no cache directory

	mu      sync.Mutex
	loaded  bool
	entries []Entry
}

// User is the cache of the user who runs the process.
var User = sync.OnceValue(func() *Cache {
	dir, err := env.CacheDir()
	if err != nil {
		return NewCache("")
	}
	return NewCache(filepath.Join(dir, "culvert", "tune.json"))
})

// NewCache returns the cache in a file, which need not exist. With an empty path
// results last as long as the process.
func NewCache(path string) *Cache { return &Cache{path: path} }

// Path is the name of the file; empty if there is none.
func (c *Cache) Path() string { return c.path }

// Prepare reports a cache that cannot keep results, before they are measured. It makes the
// directory.
func (c *Cache) Prepare() error {
	const fix = "(fix: set XDG_CACHE_HOME to a directory that can be written)"
	if c.path == "" {
		return fmt.Errorf("tune: results could not be kept: neither XDG_CACHE_HOME nor HOME is set %s", fix)
	}
	dir := filepath.Dir(c.path)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		if aerr := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS); aerr != nil {
			err = &fs.PathError{Op: "write", Path: dir, Err: aerr}
		}
	}
	if err != nil {
		return fmt.Errorf("tune: results could not be kept: %w %s", err, fix)
	}
	return nil
}

// Load finds a result and decodes it. It reports whether there is one.
func (c *Cache) Load(what string, s Subject, result any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded {
		c.entries, c.loaded = c.usable(), true
	}
	i := c.index(what, s)
	return i >= 0 && json.Unmarshal(c.entries[i].Result, result) == nil
}

// Store keeps a result, in memory and in the file. An error means that later
// processes will not find it.
func (c *Cache) Store(what string, s Subject, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("tune: encode %s: %w", what, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.path != "" || !c.loaded {
		c.entries, c.loaded = c.usable(), true // what other processes have stored
	}
	e := Entry{what, s, time.Now().UTC().Truncate(time.Second), text}
	if i := c.index(what, s); i >= 0 {
		c.entries[i] = e
	} else {
		c.entries = append(c.entries, e)
	}
	return c.write()
}

func (c *Cache) index(what string, s Subject) int {
	return slices.IndexFunc(c.entries, func(e Entry) bool { return e.What == what && e.Subject == s })
}

// Entries lists the results that the file has and that still apply.
func (c *Cache) Entries() ([]Entry, error) { return c.read() }

// Clear removes the file and forgets every result.
func (c *Cache) Clear() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries, c.loaded = nil, true
	if c.path == "" {
		return nil
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// file is the format of the cache file.
type file struct {
	Version int     `json:"version"`
	Entries []Entry `json:"entries"`
}

// usable is read for transfers: a file that cannot be read counts as empty.
func (c *Cache) usable() []Entry {
	entries, _ := c.read()
	return entries
}

// read returns the entries that still apply.
func (c *Cache) read() ([]Entry, error) {
	if c.path == "" {
		return c.entries, nil
	}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	entries, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("tune: %s: %w (fix: culvert tune --clear)", c.path, err)
	}
	return slices.DeleteFunc(entries, func(e Entry) bool { return time.Since(e.Measured) > maxAge }), nil
}

func decode(text []byte) ([]Entry, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Version != Version {
		return nil, fmt.Errorf("tune cache version %d is not supported (want %d)", f.Version, Version)
	}
	return f.Entries, nil
}

func (c *Cache) write() error {
	if c.path == "" {
		return nil
	}
	text, err := json.MarshalIndent(file{Version, c.entries}, "", "  ")
	if err != nil {
		return fmt.Errorf("tune: encode the cache: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.path), 0o700); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	return atomicfile.Write(c.path, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
