package cufile

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/culvert-io/culvert/internal/storage"
)

// A Denylist names files that only use staged routes, whatever else reaches them: ring,
// mapped and host.
type Denylist struct {
	FileSystems []string // by type: "ext4"
	Mounts      []string // directories: the files below them
	Devices     []string // block devices and their partitions: "/dev/nvme0n1"
}

// names returns what of the list names a file; empty if nothing does. Mounts are looked
// up in root only if there is a list of devices.
func (l *Denylist) names(f *storage.File, root fs.FS) string {
	if slices.Contains(l.FileSystems, f.Facts.FS) {
		return "file system " + f.Facts.FS
	}
	for _, m := range l.Mounts {
		if below(f.Name, m) {
			return "mount " + m
		}
	}
	if len(l.Devices) == 0 {
		return ""
	}
	dev := f.Name
	if !f.Facts.Block {
		m, err := storage.FindMount(root, f.Facts.Dev)
		if err != nil {
			return "" // no mount of this host: it is on none of the devices
		}
		dev = m.Source
	}
	if i := slices.IndexFunc(l.Devices, func(d string) bool { return isPartOf(dev, d) }); i >= 0 {
		return "device " + l.Devices[i]
	}
	return ""
}

// below reports whether a file is in a directory or deeper.
func below(name, dir string) bool {
	dir = path.Clean(dir)
	return dir == "/" || name == dir || strings.HasPrefix(name, dir+"/")
}

// isPartOf reports whether dev is the device or one of its partitions: /dev/sda1 of
// /dev/sda, /dev/nvme0n1p1 of /dev/nvme0n1.
func isPartOf(dev, of string) bool {
	rest, ok := strings.CutPrefix(dev, of)
	if !ok || of == "" || rest == "" {
		return ok && of != ""
	}
	if c := of[len(of)-1]; c >= '0' && c <= '9' {
		if rest, ok = strings.CutPrefix(rest, "p"); !ok {
			return false
		}
	}
	return rest != "" && strings.Trim(rest, "0123456789") == ""
}
