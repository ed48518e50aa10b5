package datapath

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

const (
	groupLimit = 192 << 20
	// groupLarge is more than a group with this limit may cache, and less than the guest.
	groupLarge, groupSmall, groupOther = 256 << 20, 16 << 20, 16 << 20
	groupFile                          = "CULVERT_GROUP_FILE"
)

// TestControlGroup reads two files in a control group whose memory is limited. One that
// is larger goes around the page cache, although the machine has memory enough, and what
// others have there stays; a smaller one stays in the cache.
func TestControlGroup(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_GROUP")
	if name := os.Getenv(groupFile); name != "" {
		readInGroup(t, name)
		return
	}
	group := limitedGroup(t)
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, noise(groupOther, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		size    int64
		limited bool
		cached  bool
	}{
		{groupLarge, true, false},
		{groupSmall, true, true},
		{groupLarge, false, true},
	} {
		name := filepath.Join(dir, strconv.FormatInt(c.size, 10)+strconv.FormatBool(c.limited))
		f, err := os.Create(name) // a hole: no block of the drive is read
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(c.size); err != nil {
			t.Fatal(err)
		}
		f.Close()
		child := exec.Command("/proc/self/exe", "-test.run=^TestControlGroup$", "-test.v")
		child.Env = append(os.Environ(), groupFile+"="+name)
		if c.limited {
			child.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
		}
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%d bytes, limited %v: %v\n%s", c.size, c.limited, err, out)
		}
		if got := cached(t, name); (got == c.size) != c.cached || !c.cached && got > 0 {
			t.Errorf("limited %v: %d of %d bytes are cached", c.limited, got, c.size)
		}
		if got := cached(t, other); got != groupOther {
			t.Errorf("%d of %d bytes of another file are still cached", got, groupOther)
		}
	}
}

// limitedGroup makes a control group with little memory.
func limitedGroup(t *testing.T) *os.File {
	t.Helper()
	const root = "/sys/fs/cgroup"
	dir := filepath.Join(root, "lab")
	if err := unix.Mount("cgroup2", root, "cgroup2", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte(strconv.Itoa(groupLimit)), 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// readInGroup reads a file in a process of the group.
func readInGroup(t *testing.T, name string) {
	st, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	w := newFixtureOn(t, soft.Config{Memory: 32 << 20})
	const window = 8 << 20
	mem := w.buffer(window)
	h := w.register(name, os.O_RDONLY)
	if err := h.Require(0, route.Ring); err != nil {
		t.Fatal(err)
	}
	var use route.CacheUse
	for off := int64(0); off < st.Size(); off += window {
		r, err := h.ReadAt(t.Context(), mem, off)
		if err != nil || r.Bytes != window {
			t.Fatalf("read at %d: %v, %v", off, &r, err)
		}
		use.Add(&r.Cache)
	}
	around := cached(t, name) == 0
	if around != (use.Bypassed == st.Size() && use.Why == storage.TooLarge) || !around && use.Bypassed > 0 {
		t.Errorf("%+v", use)
	}
}
