package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/lab/internal/job"
)

// system lists the usual file systems of Linux. The optional ones depend on the
// kernel's configuration.
var system = []struct {
	fs, path string
	optional bool
}{
	{"proc", "/proc", false},
	{"sysfs", "/sys", false},
	{"devtmpfs", "/dev", false},
	{"tmpfs", "/tmp", false},
	{"tmpfs", "/run", false},
	{"tmpfs", "/dev/shm", false},
	{"devpts", "/dev/pts", true},
	{"debugfs", "/sys/kernel/debug", true},
	{"configfs", "/sys/kernel/config", true},
}

func mountSystem() error {
	for _, m := range system {
		if err := os.MkdirAll(m.path, 0o755); err != nil && !m.optional {
			return err
		}
		err := unix.Mount(m.fs, m.path, m.fs, 0, "")
		// The kernel may have mounted /dev itself.
		if err != nil && !m.optional && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	return os.Symlink("/proc/self/fd", "/dev/fd")
}

// mountShare mounts a directory of the host. Caching is safe: the host does not
// change it while the guest runs.
func mountShare(s job.Share) error {
	if err := os.MkdirAll(s.Path, 0o755); err != nil {
		return err
	}
	err := unix.Mount(s.Tag, s.Path, "9p", unix.MS_RDONLY, "trans=virtio,version=9p2000.L,msize=262144,cache=loose")
	if err != nil {
		return fmt.Errorf("mount the host's %s: %w", s.Path, err)
	}
	return nil
}

// mountDrive makes a file system on a fresh drive and mounts it below
// job.MountRoot. After a power cut it only mounts it, and the file system recovers.
func mountDrive(m job.Mount, fresh bool) error {
	dev, err := waitDisk(m.Drive)
	if err == nil && m.Remote {
		dev, err = overRDMA(m.Drive, dev)
	}
	if err != nil {
		return err
	}
	if fresh {
		if err := mkfs(m, dev); err != nil {
			return err
		}
	}
	dir := filepath.Join(job.MountRoot, m.Drive)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	options := ""
	if m.FS == "ext4" {
		// Otherwise a thread of the kernel zeroes inode tables while a test records writes.
		options = "noinit_itable"
	}
	if err := unix.Mount(dev, dir, m.FS, 0, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.FS, dir, err)
	}
	return nil
}

// overRDMA lets the kernel's NVMe target offer a drive on software RoCE and its host
// connect to it, and returns the drive of the host. One guest has one such drive.
func overRDMA(id, dev string) (string, error) {
	const device = "eth0"
	at := netip.MustParseAddrPort("10.0.0.1:4420")
	nqn := "nqn.2026-01.io.culvert:" + id
	err := inside.SetAddress(device, netip.PrefixFrom(at.Addr(), 24))
	if err == nil {
		err = inside.AddRXE("rxe0", device)
	}
	if err == nil {
		err = inside.ExportNVMe(nqn, dev, at)
	}
	if err != nil {
		return "", err
	}
	if err := inside.ConnectNVMe(nqn, at); err != nil {
		return "", err
	}
	return waitFor(func() (string, error) { return inside.RemoteDisk(nqn) })
}

func mkfs(m job.Mount, dev string) error {
	args := []string{"-q", "-f", "-K", "-s", fmt.Sprintf("size=%d", m.Sector), dev}
	if m.FS == "ext4" {
		// Zeroing the tables of a blank drive takes seconds under emulation.
		args = []string{"-q", "-F", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", dev}
	}
	tool := "/sbin/mkfs." + m.FS
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", tool, err, out)
	}
	return nil
}

// driveTimeout is how long the kernel may take to find a drive on a busy machine.
const driveTimeout = 3 * time.Minute

// waitDisk polls for a drive: the kernel probes drives in the background.
func waitDisk(id string) (string, error) {
	return waitFor(func() (string, error) { return inside.Disk(id) })
}

func waitFor(disk func() (string, error)) (string, error) {
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		dev, err := disk()
		if err == nil {
			if _, err = os.Stat(dev); err == nil {
				return dev, nil
			}
		}
		if time.Since(start) > driveTimeout {
			return "", err
		}
	}
}

// unmount unmounts the drives' file systems.
func unmount(j job.Job) error {
	var errs []error
	for _, m := range j.Mounts {
		dir := filepath.Join(job.MountRoot, m.Drive)
		if err := unix.Unmount(dir, 0); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
