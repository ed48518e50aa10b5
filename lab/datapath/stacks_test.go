package datapath

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// withFS is the drive of the guests of TestStacks that has a file system; raw1 to raw3
// have none.
const withFS = "nv0"

// A built is a block stack of the kernel.
type built struct {
	name    string // of a file or block device on it
	changes string // what a decline says; "" if all layers pass bytes unchanged
}

// TestStacks builds block stacks and moves bytes through them by every route that is
// offered: they are right, or the route is declined. What is said about a stack is
// compared with what was built.
func TestStacks(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_STACKS")
	a, b, third := rawDisk(t, "raw1"), rawDisk(t, "raw2"), rawDisk(t, "raw3")
	const sectors = 16 << 20 / 512
	shared := newStackFixture(t)
	for _, c := range []struct {
		what  string
		build func(t *testing.T) built
	}{
		{"drive", func(*testing.T) built { return built{a, ""} }},
		{"linear", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "linear", a + " 2048"}), ""}
		}},
		{"two linear targets", func(t *testing.T) built {
			return built{mapped(t, target{sectors / 2, "linear", a + " 4096"}, target{sectors / 2, "linear", b + " 0"}), ""}
		}},
		{"striped", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "striped", fmt.Sprintf("2 128 %s 0 %s 0", a, b)}), ""}
		}},
		{"delay", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "delay", a + " 0 0"}), ""}
		}},
		{"flakey", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "flakey", a + " 0 3600 0"}), "(device mapper flakey) loses and damages"}
		}},
		{"dust", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "dust", a + " 0 512"}), "(device mapper dust) fails"}
		}},
		{"crypt", func(t *testing.T) built {
			key := strings.Repeat("0123456789abcdef", 8)
			return built{mapped(t, target{sectors, "crypt", "aes-xts-plain64 " + key + " 0 " + a + " 0"}), "(device mapper crypt) encrypts"}
		}},
		{"linear on flakey", func(t *testing.T) built {
			low := mapped(t, target{sectors, "flakey", a + " 0 3600 0"})
			return built{mapped(t, target{sectors, "linear", low + " 0"}), "(device mapper flakey) loses"}
		}},
		{"RAID 0", func(t *testing.T) built { return built{array(t, 0, a, b), ""} }},
		{"RAID 1", func(t *testing.T) built { return built{array(t, 1, a, b), ""} }},
		{"RAID 5", func(t *testing.T) built { return built{array(t, 5, a, b, third), "(RAID raid5) computes parity"} }},
		{"ext4 on RAID 1", func(t *testing.T) built {
			return built{filepath.Join(formatted(t, array(t, 1, a, b)), "f"), ""}
		}},
		{"linear on RAID 5", func(t *testing.T) built {
			return built{mapped(t, target{sectors, "linear", array(t, 5, a, b, third) + " 0"}), "(RAID raid5) computes parity"}
		}},
		{"ext4", func(*testing.T) built { return built{filepath.Join(inside.Dir(withFS), "f"), ""} }},
		{"ext4 on linear", func(t *testing.T) built {
			d := mapped(t, target{sectors, "linear", a + " 0"})
			return built{filepath.Join(formatted(t, d), "f"), ""}
		}},
		{"ext4 on loop", func(t *testing.T) built {
			return built{filepath.Join(formatted(t, looped(t)), "f"), "(virtual device loop) reads and writes a file"}
		}},
		{"btrfs", func(t *testing.T) built {
			return built{filepath.Join(btrfs(t, a), "f"), "btrfs (file system) checks checksums"}
		}},
		{"btrfs on linear", func(t *testing.T) built {
			d := mapped(t, target{2 * sectors, "linear", a + " 0"})
			return built{filepath.Join(btrfs(t, d), "f"), "btrfs (file system) checks checksums"}
		}},
		{"loop", func(t *testing.T) built { return built{looped(t), "(virtual device loop)"} }},
		{"overlay", func(t *testing.T) built { return built{filepath.Join(overlaid(t, inside.Dir(withFS)), "f"), ""} }},
		{"overlay on memory", func(t *testing.T) built {
			return built{filepath.Join(overlaid(t, "/tmp"), "f"), "tmpfs (file system) keeps the file in host memory"}
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := c.build(t)
			s.fill(t)
			s.judge(t)
			w := *shared
			w.t = t // which ends before the stack is taken down
			s.move(&w)
		})
	}
}

// stackBytes is a request that every route accepts.
const stackBytes = 256 << 10

// fill writes bytes that the tests expect.
func (s built) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(s.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WriteAt(noise(stackBytes, 1), 0)
	if err := errors.Join(err, f.Sync()); err != nil {
		t.Fatal(err)
	}
	dropCache(s.name)
}

// judge compares what is said about the stack with what was built.
func (s built) judge(t *testing.T) {
	t.Helper()
	f, err := os.Open(s.name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := storage.Adopt(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	stack, err := blockstack.Look(dev.Host(), st.Facts)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + strings.Join(stack.Tree(), "\n"))
	d := stack.Decline(route.P2PDMA)
	if (d == nil) != (s.changes == "") || d != nil && !strings.Contains(d.Evidence, s.changes) {
		t.Errorf("declined: %v, want %q", d, s.changes)
	}
}

// move reads and writes by p2pdma, where it is offered, and by ring.
func (s built) move(w *fixture) {
	t := w.t
	t.Helper()
	mem := w.buffer(stackBytes)
	for _, id := range w.routes(s.name) {
		if id != route.P2PDMA && id != route.Ring {
			continue
		}
		if id == route.P2PDMA && s.changes != "" {
			t.Errorf("route %v is offered", id)
		}
		want := noise(stackBytes, uint64(10+id))
		if err := w.dev.CopyIn(mem.Addr(), want); err != nil {
			t.Fatal(err)
		}
		h := w.register(s.name, os.O_RDWR)
		wr, err := h.WriteAt(t.Context(), mem, 0)
		if err == nil {
			err = h.Sync()
		}
		if err != nil || wr.Bytes != stackBytes {
			t.Fatalf("write: %v, %v", &wr, err)
		}
		dropCache(s.name)
		got, err := os.ReadFile(s.name)
		if s.isDevice() {
			got, err = readSome(s.name)
		}
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("what was written by %v", wr.Route), got[:stackBytes], want)
		if err := w.dev.Fill(mem.Addr(), 0, 1, stackBytes); err != nil {
			t.Fatal(err)
		}
		dropCache(s.name)
		one := w.register(s.name, os.O_RDONLY)
		if err := one.Require(0, id); err != nil {
			t.Fatal(err)
		}
		rc, err := one.ReadAt(t.Context(), mem, 0)
		if err != nil || rc.Bytes != stackBytes {
			t.Fatalf("read by %v: %v, %v", id, &rc, err)
		}
		equal(t, fmt.Sprintf("the GPU, by %v,", id), w.bytes(mem), want)
		t.Logf("written by %v, read by %v", wr.Route, rc.Route)
	}
}

func (s built) isDevice() bool { return strings.HasPrefix(s.name, "/dev/") }

func readSome(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, stackBytes)
	_, err = f.ReadAt(b, 0)
	return b, err
}

// newStackFixture has a GPU with peer memory where the guest has some.
func newStackFixture(t *testing.T) *fixture {
	t.Helper()
	if _, ok := os.LookupEnv("CULVERT_WANT_PEER"); ok {
		return newPeerFixture(t)
	}
	return newFixture(t)
}

// formatted makes and mounts ext4 on a device.
func formatted(t *testing.T, device string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("/sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mount(t, device, dir, "ext4", "noinit_itable")
	return dir
}

// btrfs mounts an empty btrfs of 20 MiB. Its image was made by "mkfs.btrfs -M": the guest
// has no such program. It skips the test if the kernel does not have the file system.
func btrfs(t *testing.T, device string) string {
	t.Helper()
	image, err := os.Open(filepath.Join("testdata", "btrfs.img.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	z, err := gzip.NewReader(image)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := os.OpenFile(device, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(disk, z)
	if err := errors.Join(err, disk.Sync(), disk.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if known, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(known), "\tbtrfs\n") {
		t.Skip("needs a kernel with btrfs: ", err)
	}
	mount(t, device, dir, "btrfs", "")
	return dir
}

func mount(t *testing.T, device, dir, fs, options string) {
	t.Helper()
	if err := unix.Mount(device, dir, fs, 0, options); err != nil {
		t.Fatalf("mount %s: %v", fs, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", fs, err)
		}
	})
}

// looped is a loop device of a file.
func looped(t *testing.T) string {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(inside.Dir(withFS), fmt.Sprintf("image%d", n)))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	name := fmt.Sprintf("/dev/loop%d", n)
	loop, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = file.Truncate(16 << 20)
	}
	if err == nil {
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &unix.LoopConfig{Fd: uint32(file.Fd())})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close()); err != nil {
			t.Error(err)
		}
	})
	return name
}

// overlaid is an overlay of directories below dir.
func overlaid(t *testing.T, dir string) string {
	t.Helper()
	base, err := os.MkdirTemp(dir, "overlay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(base, "merged")
	mount(t, "overlay", merged, "overlay", fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", base))
	return merged
}
