package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// sysfs is where the kernel shows PCI devices.
const sysfs = "/sys/bus/pci"

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func devicePath(pci string) (string, error) {
	if !pciAddress.MatchString(pci) {
		return "", fmt.Errorf("%q is no PCI address: want one like 0000:01:00.0", pci)
	}
	return filepath.Join(sysfs, "devices", pci), nil
}

// Driver is the kernel driver that a device is bound to, or "".
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
		return "", fmt.Errorf("no such device: %w (culvert nvme list shows the drives)", err)
	}
	if d := Driver(pci); d != "vfio-pci" {
		if d == "" {
			d = "no driver"
		}
		return "", fmt.Errorf("the drive is bound to %s, not to vfio-pci: bind it first (vfio.Bind, or driverctl set-override %s vfio-pci)", d, pci)
	}
	link, err := os.Readlink(filepath.Join(dir, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the drive is in no IOMMU group: the IOMMU is off (intel_iommu=on or amd_iommu=on): %w", err)
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(link), nil
}

// members lists the devices of a group and their drivers.
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

// Bind takes a drive from its driver and binds it to vfio-pci. Its block device
// vanishes, with whatever is mounted from it. It needs root.
func Bind(pci string) error { return rebind(pci, "vfio-pci") }

// Unbind gives a drive back to the driver that the kernel would choose.
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
		return fail(fmt.Errorf("it is bound to %q now (is the module %s loaded?)", got, driver))
	}
	return nil
}

// write writes to a file of sysfs, which must be there.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
