package cufile

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
)

// An osWith is one with these files.
type osWith struct{ fstest.MapFS }

func (o osWith) FS() fs.FS                     { return o.MapFS }
func (o osWith) Open(string) (dev.Node, error) { return nil, fs.ErrNotExist }

func TestDenylistOfDevices(t *testing.T) {
	root := fstest.MapFS{"proc/self/mountinfo": {Data: []byte("36 35 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n37 35 8:1 / /old rw - xfs /dev/sda rw\n")}}
	for _, c := range []struct {
		list, name, dev string
		block           bool
		want            string
	}{
		{"/dev/nvme0n1", "/data/x", "259:1", false, "device /dev/nvme0n1"},
		{"/dev/nvme0n1p1", "/data/x", "259:1", false, "device /dev/nvme0n1p1"},
		{"/dev/nvme0n11", "/data/x", "259:1", false, ""},
		{"/dev/nvme0n", "/data/x", "259:1", false, ""},
		{"/dev/nvme0", "/data/x", "259:1", false, ""},
		{"/dev/sda", "/old/x", "8:1", false, "device /dev/sda"},
		{"/dev/sda", "/dev/sda12", "8:12", true, "device /dev/sda"},
		{"/dev/sda", "/dev/sdab", "8:13", true, ""},
		{"/dev/sda", "/nowhere", "0:99", false, ""},
		{"", "/old/x", "8:1", false, ""},
	} {
		l := Denylist{Devices: []string{c.list}}
		f := &storage.File{Name: c.name, Facts: storage.Facts{Dev: c.dev, Block: c.block}}
		if got := l.names(f, osWith{root}); got != c.want {
			t.Errorf("%q names %s: %q, want %q", c.list, c.name, got, c.want)
		}
	}
}

func TestDenylistOfDrivers(t *testing.T) {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)} }
	const disk = "devices/pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1"
	root := fstest.MapFS{
		"proc/self/mountinfo":                     {Data: []byte("36 35 259:0 / /data rw - ext4 /dev/nvme0n1 rw\n")},
		"sys/dev/block/259:0":                     link("../../" + disk),
		"sys/class/block/nvme0n1":                 link("../../" + disk),
		"sys/" + disk + "/dev":                    {Data: []byte("259:0\n")},
		"sys/bus/pci/devices/0000:00:04.0/driver": link("../../../bus/pci/drivers/nvme"),
	}
	for _, c := range []struct {
		drivers []string
		number  string
		want    string
	}{
		{[]string{"nvme_rdma", "nvme"}, "259:0", "driver nvme"},
		{[]string{"nvme_rdma"}, "259:0", ""},
		{[]string{"nvme"}, "0:99", ""},
	} {
		l := Denylist{Drivers: c.drivers}
		f := &storage.File{Name: "/data/x", Facts: storage.Facts{Dev: c.number, FS: "ext4"}}
		if got := l.names(f, osWith{root}); got != c.want {
			t.Errorf("%v names %s: %q, want %q", c.drivers, c.number, got, c.want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct {
		name, dir string
		want      bool
	}{{"/a/b", "/a", true}, {"/a/b", "/a/", true}, {"/ab", "/a", false}, {"/a", "/a", true}, {"/x", "/", true}, {"/x", "", false}} {
		if got := below(c.name, c.dir); got != c.want {
			t.Errorf("%s below %q: %t", c.name, c.dir, got)
		}
	}
}
