package sysfs

import (
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)} }
	root := fstest.MapFS{
		"proc/version":                                            {Data: []byte(" two\nlines \n")},
		"sys/bus/pci/devices/0000:3d:00.0":                        link("../../../devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0"),
		"sys/bus/pci/devices/0000:3e:00.0":                        link("../../../devices/virtual/0000:3e:00.0"),
		"sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/driver": link("../../../../bus/pci/drivers/nvme"),
	}
	for got, want := range map[string]string{
		Text(root, "proc/version"):                     "two\nlines",
		Link(root, PCI("0000:3D:00.0")+"/driver"):      "nvme",
		Text(root, "proc/none") + Link(root, "sys/no"): "",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Above(root, "0000:3d:00.0"); !slices.Equal(got, []string{"pci0000:3c", "0000:3c:01.0"}) {
		t.Errorf("above: %q", got)
	}
	for _, none := range []string{"", "0000:3e:00.0", "0000:ff:00.0"} {
		if got := Above(root, none); got != nil {
			t.Errorf("above %q: %q", none, got)
		}
	}
}
