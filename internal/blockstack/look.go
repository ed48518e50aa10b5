package blockstack

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/internal/sysfs"
)

// Limits of a stack. A longer one is damaged, or made to be.
const (
	maxDepth  = 16
	maxLayers = 512
)

// errTooLarge ends a walk that does not end by itself.
var errTooLarge = errors.New("block stack has too many layers")

// Look finds the layers below a file or a block device. It reads /proc and /sys of o,
// and, where the process may, asks device mapper for its tables. An emulated drive has
// every file.
func Look(o dev.OS, f storage.Facts) (*Stack, error) {
	if name, number, ok := dev.Below(o); ok {
		f = storage.Facts{FS: name, Dev: number}
	}
	w := &walk{os: o, root: o.FS()}
	if err := w.file(f); err != nil {
		return nil, fmt.Errorf("block stack below device %s (%s): %w", f.Dev, f.FS, err)
	}
	return &Stack{w.layers}, nil
}

// A walk collects layers.
type walk struct {
	os     dev.OS
	root   fs.FS
	layers []Layer
}

func (w *walk) add(l Layer) error {
	if l.Depth >= maxDepth || len(w.layers) >= maxLayers {
		return errTooLarge
	}
	w.layers = append(w.layers, l)
	return nil
}

// file adds the file system and what is below.
func (w *walk) file(f storage.Facts) error {
	if f.Block {
		return w.number(f.Dev, 0)
	}
	mounts, err := storage.Mounts(w.root)
	if err != nil {
		return err
	}
	m := storage.Mount{Dev: f.Dev, FS: f.FS}
	for _, known := range mounts {
		if known.Dev == f.Dev {
			m = known // the last is on top
		}
	}
	l := fileSystem(m)
	ofFile(&l, f)
	return w.mounted(l, m, mounts)
}

// mounted adds the layer of a mounted file system, and what is below.
func (w *walk) mounted(l Layer, m storage.Mount, mounts []storage.Mount) error {
	if l.Kind == Overlay {
		return w.overlay(l, m, mounts)
	}
	second, named := w.realtime(&l, m)
	if err := w.add(l); err != nil {
		return err
	}
	if l.Kind == Network {
		return nil
	}
	if named {
		if err := w.device(second, l.Depth+1); err != nil {
			return err
		}
	}
	if err := w.number(m.Dev, l.Depth+1); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// btrfs has a device number of its own. What it stands on is drawn if it can be
	// found; a file system of this kind is declined anyway.
	if name, ok := w.sourceName(m.Source); ok {
		return w.device(name, l.Depth+1)
	}
	if l.Changes == "" {
		return fmt.Errorf("no block device %s: %w", m.Dev, fs.ErrNotExist)
	}
	return nil
}

// realtime is the second device of xfs, on which a file may be. Its number is not that of the
// file system.
func (w *walk) realtime(l *Layer, m storage.Mount) (name string, ok bool) {
	source := option(m.Options, "rtdev")
	if source == "" {
		return "", false
	}
	if name, ok = w.sourceName(source); !ok {
		l.Changes, l.Fix = "may keep the file on "+source+", which cannot be found", useExt4
	}
	return name, ok
}

// overlay adds an overlay and the file systems of its directories. A file is in one
// of them, and moves to the upper one when it is first written, so all must pass its
// bytes.
func (w *walk) overlay(l Layer, m storage.Mount, mounts []storage.Mount) error {
	var below []storage.Mount
	for _, dir := range overlayDirs(m.Options) {
		on, ok := mountOf(mounts, dir)
		if !ok || on.Dev == m.Dev || !w.exists(strings.TrimPrefix(dir, "/")) {
			l.Changes = "stands on directories that this process does not see: " + dir
			l.Fix = "put the file on a volume of its own"
			return w.add(l)
		}
		if len(below) == 0 || below[len(below)-1].Dev != on.Dev {
			below = append(below, on)
		}
	}
	if len(below) == 0 {
		l.Changes, l.Fix = "does not say on which directories it stands", "put the file on a volume of its own"
	}
	if err := w.add(l); err != nil {
		return err
	}
	for _, on := range below {
		next := fileSystem(on)
		next.Depth = l.Depth + 1
		if err := w.mounted(next, on, mounts); err != nil {
			return err
		}
	}
	return nil
}

// overlayDirs are the directories of an overlay: upperdir, then the parts of
// lowerdir.
func overlayDirs(options string) (dirs []string) {
	for _, o := range strings.Split(options, ",") {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "upperdir", "lowerdir", "lowerdir+", "datadir+":
			for _, dir := range strings.Split(value, ":") {
				if dir != "" {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	return dirs
}

// mountOf finds the mount that a path is on: the last of those with the longest mount
// point. A relative path is not found: it was relative to the one who mounted.
func mountOf(mounts []storage.Mount, name string) (on storage.Mount, ok bool) {
	if !path.IsAbs(name) {
		return on, false
	}
	for _, m := range mounts {
		below := m.Point == "/" || name == m.Point || strings.HasPrefix(name, m.Point+"/")
		if below && len(m.Point) >= len(on.Point) {
			on, ok = m, true
		}
	}
	return on, ok
}

// sourceName is the kernel's name of a mount source such as /dev/mapper/data.
func (w *walk) sourceName(source string) (string, bool) {
	name, ok := strings.CutPrefix(source, "/dev/")
	if !ok {
		return "", false
	}
	if mapped, ok := strings.CutPrefix(name, "mapper/"); ok {
		return w.mappedName(mapped)
	}
	_, err := fs.Lstat(w.root, "sys/class/block/"+name)
	return name, err == nil && !strings.Contains(name, "/")
}

// text is the content of a file of sysfs, "" if it cannot be read.
func (w *walk) text(name string) string { return sysfs.Text(w.root, name) }

func (w *walk) exists(name string) bool {
	_, err := fs.Stat(w.root, name)
	return err == nil
}
