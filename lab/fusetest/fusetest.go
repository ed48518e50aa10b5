// Package fusetest is a FUSE file system for tests: one backing file under several names,
// each of which is opened with other rights to the page cache. The server is a process of
// its own: a page fault on the file system stops a thread of Go that the server might need.
package fusetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The names of the backing file.
const (
	Plain    = "plain"    // the kernel caches it, until the next open
	Kept     = "kept"     // the kernel caches it
	Uncached = "uncached" // the kernel caches nothing, whatever the flags of open
	NoDirect = "nodirect" // open with O_DIRECT fails
)

// asked is a file with the number of bytes that were read of the others.
const asked = "asked"

// serveEnv has the backing file, for the process that serves.
const serveEnv = "CULVERT_FUSETEST_FILE"

// deviceFD is the descriptor of /dev/fuse in that process.
const deviceFD = 3

// Main serves the file system if Mount has started this process, and then does not return.
// It belongs into TestMain of packages that use Mount.
func Main() {
	backing := os.Getenv(serveEnv)
	if backing == "" {
		return
	}
	if err := serve(deviceFD, backing); err != nil {
		fmt.Fprintln(os.Stderr, "fusetest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A FS is a mounted file system.
type FS struct{ dir string }

// Mount mounts a file system with a backing file until the end of the test, which is
// skipped where that is not possible.
func Mount(t testing.TB, backing string) *FS {
	t.Helper()
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("needs /dev/fuse: %v", err)
	}
	defer device.Close()
	dir := t.TempDir()
	opts := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", device.Fd(), os.Getuid(), os.Getgid())
	if err := unix.Mount("fusetest", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
		t.Skipf("needs the right to mount a FUSE file system: %v", err)
	}
	server := exec.Command("/proc/self/exe")
	server.Env = append(os.Environ(), serveEnv+"="+backing)
	server.ExtraFiles = []*os.File{device}
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		unix.Unmount(dir, unix.MNT_DETACH)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			unix.Unmount(dir, unix.MNT_DETACH)
			server.Process.Kill()
		}
		if err := server.Wait(); err != nil {
			t.Errorf("server of the file system: %v", err)
		}
	})
	return &FS{dir}
}

// Path is the path of one of the names.
func (f *FS) Path(name string) string { return filepath.Join(f.dir, name) }

// Asked is how many bytes of the backing file the kernel has asked the server for.
func (f *FS) Asked(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile(f.Path(asked))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
