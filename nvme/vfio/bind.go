package vfio

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// sysfs has the kernel's PCI devices and drivers.
const sysfs = "/sys/bus/pci"

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func devicePath(pci string) (string, error) {
	if !pciAddress.MatchString(pci) {
		return "", fmt.Errorf("invalid PCI address %q (example: 0000:01:00.0)", pci)
	}
	return filepath.Join(sysfs, "devices", pci), nil
}

// Driver is the kernel driver of a device, or "".
func Driver(pci string) string {
	dir, err := devicePath(pci)
	if err != nil {
		return ""
	}
	link, err := os.Readlink(filepath.Join(dir, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// groupOf is the number of a device's IOMMU group.
func groupOf(pci string) (string, error) {
	dir, err := devicePath(pci)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("device not found: %w (culvert nvme list shows the drives)", err)
	}
	if d := Driver(pci); d != "vfio-pci" {
		return "", fmt.Errorf("drive is bound to %s, not to vfio-pci (fix: vfio.Bind, or driverctl set-override %s vfio-pci)", cmp.Or(d, "no driver"), pci)
	}
	link, err := os.Readlink(filepath.Join(dir, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("drive has no IOMMU group: %w (fix: boot with intel_iommu=on or amd_iommu=on)", err)
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(link), nil
}

// members lists the devices of an IOMMU group with their drivers.
func members(group string) string {
	list, err := os.ReadDir("/sys/kernel/iommu_groups/" + group + "/devices")
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name()+": "+Driver(e.Name()))
	}
	return strings.Join(out, ", ")
}

// Bind unbinds a drive from its driver and binds it to vfio-pci. Its block
// device disappears, also if it is mounted. Bind needs root.
func Bind(pci string) error { return rebind(pci, "vfio-pci") }

// Unbind returns a drive to the driver that the kernel chooses.
func Unbind(pci string) error { return rebind(pci, "") }

func rebind(pci, driver string) error {
	dir, err := devicePath(pci)
	if err != nil {
		return err
	}
	if driver != "" && Driver(pci) == driver {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("bind %s to %q: %w", pci, driver, err) }
	if err := write(filepath.Join(dir, "driver_override"), driver+"\n"); err != nil {
		return fail(err)
	}
	if err := write(filepath.Join(dir, "driver", "unbind"), pci); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if err := write(filepath.Join(sysfs, "drivers_probe"), pci); err != nil {
		return fail(err)
	}
	if got := Driver(pci); driver != "" && got != driver {
		return fail(fmt.Errorf("bound to %q instead (fix: modprobe %s)", got, driver))
	}
	return nil
}

// write writes to an existing file of sysfs.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
