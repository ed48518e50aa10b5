package blockstack

import (
	"io/fs"
	"slices"
	"strings"
)

// mapperPasses are the target types that send the pages of a request to other devices
// as they are.
var mapperPasses = []string{"linear", "striped", "multipath", "unstriped", "switch", "delay"}

// mapperChanges say what other target types do.
var mapperChanges = map[string]string{
	"crypt":      "encrypts and decrypts the host's pages",
	"integrity":  "computes checksums of the host's pages",
	"verity":     "checks hashes of the host's pages",
	"raid":       "may compute parity from the host's pages",
	"mirror":     "writes through a log of its own",
	"cache":      "keeps copies of blocks on another drive",
	"writecache": "keeps copies of blocks on another drive",
	"snapshot":   "copies blocks when they are written",
	"thin":       "allocates blocks when they are written, and copies shared ones",
	"vdo":        "compresses and deduplicates",
	"flakey":     "loses and damages requests on purpose",
	"dust":       "fails requests on purpose",
	"zoned":      "writes blocks in another order",
	"ebs":        "copies blocks that are smaller than the drive's",
	"error":      "has no bytes",
	"zero":       "has no bytes",
}

// mapper adds a device of device mapper.
func (w *walk) mapper(l Layer, dir string) error {
	name, uuid := w.text(dir+"/dm/name"), w.text(dir+"/dm/uuid")
	l.Kind, l.Detail = Mapper, name
	l.id += " " + uuid
	types, err := mapperTypes(w.os, w.text(dir+"/dev"))
	if err != nil {
		types = w.guessTypes(uuid, dir)
		if types != nil {
			l.Detail += ", type by its UUID"
		}
	}
	l.Type = strings.Join(types, "+")
	switch bad := slices.IndexFunc(types, func(t string) bool { return !slices.Contains(mapperPasses, t) }); {
	case types == nil:
		l.Changes = "has a table that this process may not read"
		l.Fix = "run as root once to see it: dmsetup table " + name
	case bad >= 0:
		if l.Changes = mapperChanges[types[bad]]; l.Changes == "" {
			l.Changes = "has a target that is not known to pass bytes unchanged"
		}
		l.Fix = "put the file on a drive, or on a plain logical volume"
	case w.text(dir+"/dm/suspended") == "1":
		l.Changes, l.Fix = "is suspended: its table is being changed", "dmsetup resume "+name
	}
	return w.stacked(l, dir)
}

// guessTypes concludes the target types from the UUID, whose first word names the
// program that made the device. It returns nil if that does not tell. A logical
// volume of LVM that is more than linear or striped stands on hidden logical volumes.
func (w *walk) guessTypes(uuid, dir string) []string {
	maker, rest, _ := strings.Cut(uuid, "-")
	switch {
	case maker == "CRYPT" && strings.HasPrefix(rest, "VERITY"):
		return []string{"verity"}
	case maker == "CRYPT" && strings.HasPrefix(rest, "INTEGRITY"):
		return []string{"integrity"}
	case maker == "CRYPT":
		return []string{"crypt"}
	case maker == "mpath":
		return []string{"multipath"}
	case strings.HasPrefix(maker, "part") && rest != "":
		return []string{"linear"} // kpartx
	case maker == "LVM":
		if slices.ContainsFunc(w.slaves(dir), func(s string) bool {
			return strings.HasPrefix(w.text("sys/class/block/"+s+"/dm/uuid"), "LVM-")
		}) {
			return nil
		}
		return []string{"linear"}
	}
	return nil
}

// mappedName is the kernel's name of a device mapper name.
func (w *walk) mappedName(name string) (string, bool) {
	list, _ := fs.ReadDir(w.root, "sys/class/block")
	for _, e := range list {
		if strings.HasPrefix(e.Name(), "dm-") && w.text("sys/class/block/"+e.Name()+"/dm/name") == name {
			return e.Name(), true
		}
	}
	return "", false
}
