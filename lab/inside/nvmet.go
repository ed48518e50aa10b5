package inside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const nvmet = "/sys/kernel/config/nvmet"

// ExportNVMe makes the kernel's NVMe target offer a block device over RDMA, as the only
// namespace of a subsystem, to any host.
func ExportNVMe(nqn, disk string, at netip.AddrPort) error {
	sub, port := filepath.Join(nvmet, "subsystems", nqn), filepath.Join(nvmet, "ports", "1")
	ns := filepath.Join(sub, "namespaces", "1")
	err := errors.Join(
		os.Mkdir(sub, 0o755), put(sub, "attr_allow_any_host", "1"),
		os.Mkdir(ns, 0o755), put(ns, "device_path", disk), put(ns, "enable", "1"),
		os.Mkdir(port, 0o755), put(port, "addr_trtype", "rdma"), put(port, "addr_adrfam", "ipv4"),
		put(port, "addr_traddr", at.Addr().String()), put(port, "addr_trsvcid", strconv.Itoa(int(at.Port()))),
		os.Symlink(sub, filepath.Join(port, "subsystems", nqn)),
	)
	if err != nil {
		return fmt.Errorf("export %s over NVMe: %w", disk, err)
	}
	return nil
}

func put(dir, name, value string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(value), 0)
}

// ConnectNVMe makes the kernel's NVMe host connect to a subsystem over RDMA,
// with options of its own such as keep_alive_tmo=10.
func ConnectNVMe(nqn string, at netip.AddrPort, options ...string) error {
	f, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", nqn, err)
	}
	defer f.Close()
	options = append([]string{"transport=rdma", fmt.Sprintf("traddr=%v", at.Addr()), fmt.Sprintf("trsvcid=%d", at.Port()), "nqn=" + nqn}, options...)
	if _, err := f.WriteString(strings.Join(options, ",")); err != nil {
		return fmt.Errorf("connect to %s: %w", nqn, err)
	}
	return nil
}

// DisconnectNVMe makes the kernel's NVMe host leave a subsystem.
func DisconnectNVMe(nqn string) error {
	ctrl, err := find("/sys/class/nvme/*/subsysnqn", nqn)
	if err == nil {
		err = put(ctrl, "delete_controller", "1")
	}
	if err != nil {
		return fmt.Errorf("disconnect from %s: %w", nqn, err)
	}
	return nil
}

// RemoteDisk returns the block device of the only namespace of a subsystem that the
// kernel's NVMe host is connected to.
func RemoteDisk(nqn string) (string, error) {
	subsystem, err := find("/sys/class/nvme-subsystem/*/subsysnqn", nqn)
	if err != nil {
		return "", err
	}
	return namespaceIn(subsystem)
}
