package storage

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const mountinfo = `22 27 0:21 / /sys rw,nosuid - sysfs sysfs rw
27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,data=ordered
31 27 0:40 / /dev/shm rw - tmpfs tmpfs rw
99 27 9:0 / /with\040blank rw,noatime master:3 - xfs /dev/md0 rw,attr2
bad line
`

func TestFindMount(t *testing.T) {
	root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte(mountinfo)}}
	for dev, want := range map[string]Mount{
		"259:1": {"259:1", "/", "ext4", "/dev/nvme0n1p1", "rw,relatime,rw,data=ordered"},
		"0:40":  {"0:40", "/dev/shm", "tmpfs", "tmpfs", "rw,rw"},
		"9:0":   {"9:0", "/with blank", "xfs", "/dev/md0", "rw,noatime,rw,attr2"},
	} {
		got, err := FindMount(root, dev)
		if err != nil {
			t.Errorf("%s: %v", dev, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", dev, d)
		}
	}
	if _, err := FindMount(root, "7:7"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown device: %v", err)
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add("36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := parseMount(line); ok && (m.Dev == "" || m.FS == "") {
			t.Errorf("parseMount(%q) = %+v", line, m)
		}
	})
}
