package cufile

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/blockstack"
	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
)

// A Denylist names files that only use staged routes, whatever else reaches them: ring,
// mapped and host.
type Denylist struct {
	FileSystems []string // by type: "ext4"
	Mounts      []string // directories: the files below them
	Devices     []string // block devices and their partitions: "/dev/nvme0n1"
	Drivers     []string // kernel modules of drives and network file systems: "nvme", "nvme_rdma"
	FSIDs       []string // identifiers of file systems, as stat -f prints them: "8c0e7b1f3a2d"
}

// names returns what of the list names a file; empty if nothing does. Only lists with
// entries are looked up.
func (l *Denylist) names(f *storage.File, os dev.OS) string {
	if slices.Contains(l.FileSystems, f.Facts.FS) {
		return "file system " + f.Facts.FS
	}
	for _, m := range l.Mounts {
		if below(f.Name, m) {
			return "mount " + m
		}
	}
	if len(l.Devices) > 0 {
		if d := l.device(f, os.FS()); d != "" {
			return "device " + d
		}
	}
	if len(l.Drivers) > 0 {
		if d := l.driver(f, os); d != "" {
			return "driver " + d
		}
	}
	if len(l.FSIDs) > 0 && slices.ContainsFunc(l.FSIDs, isFSID(f)) {
		return "file system id"
	}
	return ""
}

// device is the listed device of a file.
func (l *Denylist) device(f *storage.File, root fs.FS) string {
	dev := f.Name
	if !f.Facts.Block {
		m, err := storage.FindMount(root, f.Facts.Dev)
		if err != nil {
			return "" // no mount of this host: it is on none of the devices
		}
		dev = m.Source
	}
	if i := slices.IndexFunc(l.Devices, func(d string) bool { return isPartOf(dev, d) }); i >= 0 {
		return l.Devices[i]
	}
	return ""
}

// driver is the listed kernel module that moves bytes of a file. Any drive of an array
// counts.
func (l *Denylist) driver(f *storage.File, os dev.OS) string {
	s, err := blockstack.Look(os, f.Facts)
	if err != nil {
		return "" // no drive of this host
	}
	for i := range s.Layers {
		layer := &s.Layers[i]
		if (layer.Kind == blockstack.Drive || layer.Kind == blockstack.Network) && slices.Contains(l.Drivers, layer.Type) {
			return layer.Type
		}
	}
	return ""
}

// isFSID returns a function that compares the identifier of the file's file system.
func isFSID(f *storage.File) func(string) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(f.FD(), &st) != nil {
		return func(string) bool { return false }
	}
	id := uint64(uint32(st.Fsid.Val[0]))<<32 | uint64(uint32(st.Fsid.Val[1]))
	return func(s string) bool {
		listed, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
		return err == nil && listed == id
	}
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
