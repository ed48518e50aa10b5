package storage

import (
	"bufio"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// A Mount is a line of mountinfo.
type Mount struct {
	Dev     string `json:"device"` // "259:1"
	Point   string `json:"mount_point"`
	FS      string `json:"file_system"`
	Source  string `json:"source"`
	Options string `json:"options"` // of the mount and of the super block
}

// Mounts returns the mounts in proc/self/mountinfo of root, in its order.
func Mounts(root fs.FS) ([]Mount, error) {
	f, err := root.Open(mountInfo)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []Mount
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if m, ok := parseMount(sc.Text()); ok {
			list = append(list, m)
		}
	}
	return list, sc.Err()
}

const mountInfo = "proc/self/mountinfo"

// FindMount finds the mount of a device in proc/self/mountinfo of root: the last one,
// which is on top when mounts are stacked.
func FindMount(root fs.FS, dev string) (Mount, error) {
	list, err := Mounts(root)
	if err != nil {
		return Mount{}, err
	}
	for _, m := range slices.Backward(list) {
		if m.Dev == dev {
			return m, nil
		}
	}
	return Mount{}, fmt.Errorf("%s: no mount of device %s: %w", mountInfo, dev, fs.ErrNotExist)
}

// parseMount parses "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue".
func parseMount(line string) (Mount, bool) {
	mine, super, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(mine), strings.Fields(super)
	if !ok || len(left) < 6 || len(right) < 2 {
		return Mount{}, false
	}
	m := Mount{Dev: left[2], Point: unescape(left[4]), FS: right[0], Source: unescape(right[1]), Options: left[5]}
	if len(right) > 2 {
		m.Options += "," + unescape(right[2])
	}
	return m, true
}

// unescape decodes the octal escapes of blanks in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
