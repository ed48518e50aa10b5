package crashtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/quality/intercept"
)

// counted are the system calls that a copy of small files makes.
var counted = []string{
	"open", "tmpfile", "stat", "fstat", "statfs", "fcntl", "seek", "read", "write", "close", "mkdir", "unlink", "rename", "link", "lock",
	"chmod", "chown", "utimens", "xattr", "truncate", "allocate", "sync", "syncfs", "sync range",
}

// smallFiles writes files of a few bytes, in ten directories.
func (w *world) smallFiles(n int) error {
	files := map[string][]byte{}
	for i := range n {
		files[fmt.Sprintf("src/%d/%d", i%10, i)] = fmt.Appendf(nil, "file %d", i)
	}
	return w.writeFiles(files)
}

// countCalls returns how many system calls a copy of n small files makes in the world.
func countCalls(t *testing.T, n int) map[string]int {
	t.Helper()
	w := newWorld(t)
	defer w.remove()
	calls := map[string]int{}
	err := w.smallFiles(n)
	if err == nil {
		_, err = w.watched([]string{"cp", "src", "dst"}, counted, func(c *intercept.Call) intercept.Verdict {
			calls[c.Name]++
			return intercept.Proceed
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// A file more costs few system calls, and one sync at most: directories, file systems and
// GPU memory are not looked at for each file.
func TestCallsPerFile(t *testing.T) {
	needIntercept(t)
	t.Parallel()
	const more, most = 100, 22
	few, many := countCalls(t, 20), countCalls(t, 20+more)
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(many)) {
		n := many[name] - few[name]
		t.Logf("%-10s %5.2f per file", name, float64(n)/more)
		sum += n
	}
	if sum > most*more {
		t.Errorf("%.1f system calls per file, want at most %d", float64(sum)/more, most)
	}
	if n := many["sync"] - few["sync"]; n > more {
		t.Errorf("%d more files have %d more syncs", more, n)
	}
}

// A file gets its name when its data is on stable storage, and is in the journal when its
// name is, too: whatever a power failure takes, the journal lists nothing of it.
func TestStorageBeforeNames(t *testing.T) {
	needIntercept(t)
	disk := t.TempDir()
	for name, dir := range map[string]string{"each file": "", "together": disk} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if dir != "" {
				w.dir = filepath.Join(dir, "w")
				if err := os.Mkdir(w.dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			o := order{synced: map[string]bool{}, named: map[string]bool{}}
			err := w.smallFiles(40)
			if err == nil {
				_, err = w.watched([]string{"cp", "src", "dst"}, []string{"sync", "syncfs", "link", "write"}, func(c *intercept.Call) intercept.Verdict {
					o.see(c)
					return intercept.Proceed
				})
			}
			if err = errors.Join(err, o.err); err != nil || o.links != 40 || o.journal == 0 {
				t.Errorf("%v; %d files got names, %d writes to the journal since", err, o.links, o.journal)
			}
			t.Logf("%d syncs of the file system", o.all)
		})
	}
}

// An order watches a copy.
type order struct {
	synced  map[string]bool // files, as the kernel calls them
	named   map[string]bool // directories in which files got names that are not on storage
	links   int
	journal int // writes to the journal after the first name
	all     int // syncs of the file system
	err     error
}

func (o *order) see(c *intercept.Call) {
	switch c.Name {
	case "syncfs":
		o.all++
	case "sync":
		o.synced[c.Paths[0]] = true
		delete(o.named, c.Paths[0])
	case "link":
		file, err := c.Paths[0], error(nil)
		if strings.HasPrefix(file, "/proc/self/") { // where only that links an open file
			file, err = os.Readlink(strings.Replace(file, "self", fmt.Sprint(c.PID), 1))
		}
		if err != nil || !o.synced[file] && o.all == 0 {
			o.err = errors.Join(o.err, fmt.Errorf("%s gets its name before its data is synced, %w", c.Paths[1], err))
		}
		o.links++
		o.named[filepath.Dir(c.Paths[1])] = true
	case "write":
		if filepath.Base(c.Paths[0]) != ".culvert-cp.journal" || o.links == 0 {
			return
		}
		o.journal++
		if len(o.named) > 0 {
			o.err = errors.Join(o.err, fmt.Errorf("files are in the journal before their names in %v are synced", slices.Sorted(maps.Keys(o.named))))
		}
	}
}
