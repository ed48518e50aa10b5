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

func TestFindBlockDevice(t *testing.T) {
	const disk = "sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1"
	root := fstest.MapFS{
		"sys/dev/block/259:1":                     {Mode: fs.ModeSymlink, Data: []byte("../../devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/nvme0n1p1")},
		disk + "/nvme0n1p1/partition":             {Data: []byte("1\n")},
		"sys/bus/pci/devices/0000:3d:00.0/driver": {Mode: fs.ModeSymlink, Data: []byte("../../../../bus/pci/drivers/nvme")},
		"sys/dev/block/254:0":                     {Mode: fs.ModeSymlink, Data: []byte("../../devices/pci0000:00/0000:00:04.0/virtio1/block/vda")},
		"sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/device/driver": {Mode: fs.ModeSymlink, Data: []byte("../../../bus/virtio/drivers/virtio_blk")},
		"sys/bus/pci/devices/0000:00:04.0/driver":                             {Mode: fs.ModeSymlink, Data: []byte("../../../../bus/pci/drivers/virtio-pci")},
		"sys/dev/block/9:0":                            {Mode: fs.ModeSymlink, Data: []byte("../../devices/virtual/block/md0")},
		"sys/devices/virtual/block/md0/slaves/nvme1n1": {},
		"sys/devices/virtual/block/md0/slaves/nvme2n1": {},
	}
	for dev, want := range map[string]BlockDevice{
		"259:1": {Name: "nvme0n1", Driver: "nvme", PCI: "0000:3d:00.0"},
		"254:0": {Name: "vda", Driver: "virtio_blk", PCI: "0000:00:04.0"},
		"9:0":   {Name: "md0", Slaves: []string{"nvme1n1", "nvme2n1"}},
	} {
		got, err := FindBlockDevice(root, dev)
		if err != nil {
			t.Errorf("%s: %v", dev, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", dev, d)
		}
	}
	if _, err := FindBlockDevice(root, "0:40"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tmpfs has no block device: %v", err)
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
