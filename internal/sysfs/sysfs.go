// Package sysfs reads files of /proc and /sys in a tree, which is the machine's or one
// that tests have captured. What is missing reads as nothing: kernels and drivers differ
// in what they show.
package sysfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Text is the content of a file, without space around it; "" if it cannot be read.
func Text(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Link is the last element of what a symbolic link points to, such as the name of a
// driver; "" if there is no link.
func Link(root fs.FS, name string) string {
	target, err := fs.ReadLink(root, name)
	if err != nil {
		return ""
	}
	return path.Base(target)
}

// PCI is the directory of a PCI device.
func PCI(address string) string { return "sys/bus/pci/devices/" + strings.ToLower(address) }

// Above lists what is above a PCI device: the host bridge ("pci0000:00"), then the
// addresses of bridges. It is nil if the device is not there.
func Above(root fs.FS, address string) []string {
	link, err := fs.ReadLink(root, PCI(address))
	if err != nil || address == "" {
		return nil
	}
	parts := strings.Split(path.Dir(link), "/")
	from := slices.IndexFunc(parts, func(s string) bool { return strings.HasPrefix(s, "pci") })
	if from < 0 {
		return nil
	}
	return parts[from:]
}
