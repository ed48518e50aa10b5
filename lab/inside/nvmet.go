package inside

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
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
