package blockstack

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/culvert-io/culvert/internal/dev"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// Two NVMe drives, the first with a partition, and a virtio disk.
const drives = `
block 259:0 devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1
block 259:1 devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
block 259:2 devices/pci0000:3c/0000:3c:02.0/0000:3e:00.0/nvme/nvme1/nvme1n1
block 254:0 devices/pci0000:00/0000:00:04.0/virtio1/block/vda
sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/device/transport pcie
sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/queue/zoned none
sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/diskseq 9
sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/integrity/format none
sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/partition 1
sys/devices/pci0000:3c/0000:3c:02.0/0000:3e:00.0/nvme/nvme1/nvme1n1/device/transport pcie
sys/devices/pci0000:00/0000:00:04.0/virtio1/block/vda/device/driver -> ../../../bus/virtio/drivers/virtio_blk
mount 22 27 0:21 / /sys rw,nosuid - sysfs sysfs rw
mount 27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,data=ordered
`

func onDM(uuid string, slaves ...string) string {
	text := "block 253:0 devices/virtual/block/dm-0\n" +
		"mount 40 27 253:0 / /data rw - ext4 /dev/mapper/data rw\n" +
		"sys/devices/virtual/block/dm-0/dm/name data\n" +
		"sys/devices/virtual/block/dm-0/dm/suspended 0\n" +
		"sys/devices/virtual/block/dm-0/dm/uuid " + uuid + "\n"
	for _, s := range slaves {
		text += "sys/devices/virtual/block/dm-0/slaves/" + s + " x\n"
	}
	return text
}

func onMD(level, state string) string {
	return "block 9:0 devices/virtual/block/md0\n" +
		"mount 40 27 9:0 / /data rw - xfs /dev/md0 rw\n" +
		"sys/devices/virtual/block/md0/md/level " + level + "\n" +
		"sys/devices/virtual/block/md0/md/array_state " + state + "\n" +
		"sys/devices/virtual/block/md0/slaves/nvme0n1p1 x\n" +
		"sys/devices/virtual/block/md0/slaves/nvme1n1 x\n"
}

func onNFS(options string) string {
	return "mount 50 27 0:33 / /n rw - nfs4 server:/x rw," + options + "\n"
}

func onExt4(number string) storage.Facts { return storage.Facts{Dev: number, FS: "ext4"} }

const nvmeDir = "sys/devices/pci0000:3c/0000:3c:01.0/0000:3d:00.0/nvme/nvme0/nvme0n1"

// Every layer of the kernel that is known, and what is said about it. changes is a
// part of the decline's text; "" means that a direct route is offered.
var cases = map[string]struct {
	more    string // of the tree
	facts   storage.Facts
	tables  map[string][]string
	changes string
}{
	"partition":       {"", onExt4("259:1"), nil, ""},
	"drive":           {"", storage.Facts{Dev: "259:2", Block: true}, nil, ""},
	"LVM":             {onDM("LVM-abc", "nvme0n1p1"), onExt4("253:0"), nil, ""},
	"linear":          {onDM("", "nvme0n1p1"), onExt4("253:0"), map[string][]string{"253:0": {"linear", "striped"}}, ""},
	"multipath":       {onDM("mpath-36001", "nvme0n1"), onExt4("253:0"), nil, ""},
	"kpartx":          {onDM("part1-mpath-36001", "nvme0n1"), onExt4("253:0"), nil, ""},
	"table unknown":   {onDM("", "nvme0n1p1"), onExt4("253:0"), nil, "dm-0 (device mapper) has a table that this process may not read"},
	"LVM on LVM":      {onDM("LVM-abc", "dm-1") + hidden, onExt4("253:0"), nil, "may not read"},
	"crypt":           {onDM("CRYPT-LUKS2-abc-data", "nvme0n1p1"), onExt4("253:0"), nil, "dm-0 (device mapper crypt) encrypts"},
	"crypt, by table": {onDM("LVM-lies", "nvme0n1p1"), onExt4("253:0"), map[string][]string{"253:0": {"linear", "crypt"}}, "encrypts"},
	"verity":          {onDM("CRYPT-VERITY-abc-data", "nvme0n1p1"), onExt4("253:0"), nil, "checks hashes"},
	"integrity":       {onDM("CRYPT-INTEGRITY-abc-data", "nvme0n1p1"), onExt4("253:0"), nil, "computes checksums"},
	"thin":            {onDM("LVM-abc", "dm-1") + hidden, onExt4("253:0"), map[string][]string{"253:0": {"thin"}, "253:1": {"thin-pool"}}, "allocates blocks"},
	"minor 260": {
		"block 253:260 devices/virtual/block/dm-260\nsys/devices/virtual/block/dm-260/dm/name x\nsys/devices/virtual/block/dm-260/slaves/nvme1n1 x\n",
		storage.Facts{Dev: "253:260", Block: true},
		map[string][]string{"253:260": {"linear"}},
		"",
	},
	"vdo":             {onDM("", "nvme0n1p1"), onExt4("253:0"), map[string][]string{"253:0": {"vdo"}}, "compresses"},
	"new target":      {onDM("", "nvme0n1p1"), onExt4("253:0"), map[string][]string{"253:0": {"invented"}}, "dm-0 (device mapper invented) has a target that is not known"},
	"no device below": {onDM("LVM-abc"), onExt4("253:0"), nil, "has no devices below"},
	"suspended":       {onDM("LVM-abc", "nvme0n1p1") + "sys/devices/virtual/block/dm-0/dm/suspended 1\n", onExt4("253:0"), nil, "suspended"},
	"crypt below LVM": {onDM("LVM-abc", "dm-1") + "block 253:1 devices/virtual/block/dm-1\nsys/devices/virtual/block/dm-1/dm/uuid CRYPT-LUKS2-x\nsys/devices/virtual/block/dm-1/slaves/nvme0n1p1 x\n", onExt4("253:0"), nil, "dm-1 (device mapper crypt) encrypts"},

	"RAID 0":            {onMD("raid0", "clean"), onExt4("9:0"), nil, ""},
	"RAID 1":            {onMD("raid1", "active"), onExt4("9:0"), nil, ""},
	"RAID 10":           {onMD("raid10", "active"), onExt4("9:0"), nil, ""},
	"RAID 1, behind":    {onMD("raid1", "active") + "sys/devices/virtual/block/md0/md/bitmap/backlog 256\n", onExt4("9:0"), nil, "write-behind"},
	"RAID 1, no behind": {onMD("raid1", "active") + "sys/devices/virtual/block/md0/md/bitmap/backlog 0\n", onExt4("9:0"), nil, ""},
	"RAID 4":            {onMD("raid4", "active"), onExt4("9:0"), nil, "parity"},
	"RAID 5":            {onMD("raid5", "active"), onExt4("9:0"), nil, "md0 (RAID raid5) computes parity"},
	"RAID 6":            {onMD("raid6", "active"), onExt4("9:0"), nil, "parity"},
	"RAID, stopped":     {onMD("raid1", "inactive"), onExt4("9:0"), nil, "does not run"},
	"RAID, new level":   {onMD("raid99", "active"), onExt4("9:0"), nil, "not known"},

	"loop":         {"block 7:0 devices/virtual/block/loop0\nsys/devices/virtual/block/loop0/loop/backing_file /images/a\n", storage.Facts{Dev: "7:0", Block: true}, nil, "loop0 (virtual device loop) reads and writes a file"},
	"nbd":          {"block 43:0 devices/virtual/block/nbd0\n", storage.Facts{Dev: "43:0", Block: true}, nil, "over the network"},
	"rbd":          {"block 252:0 devices/rbd/0/block/rbd0\n", storage.Facts{Dev: "252:0", Block: true}, nil, "over the network"},
	"drbd":         {"block 147:0 devices/virtual/block/drbd0\n", storage.Facts{Dev: "147:0", Block: true}, nil, "over the network"},
	"bcache":       {"block 252:0 devices/virtual/block/bcache0\nsys/devices/virtual/block/bcache0/slaves/nvme0n1 x\n", storage.Facts{Dev: "252:0", Block: true}, nil, "cache drive"},
	"iscsi":        {"block 8:16 devices/platform/host6/session1/target6:0:0/6:0:0:1/block/sdb\n", storage.Facts{Dev: "8:16", Block: true}, nil, "sdb (virtual device iscsi) sends the host's pages over the network"},
	"iscsi, HBA":   {"block 8:16 devices/pci0000:00/0000:00:05.0/host6/session1/target6:0:0/6:0:0:1/block/sdb\n", storage.Facts{Dev: "8:16", Block: true}, nil, ""},
	"zram":         {"block 252:0 devices/virtual/block/zram0\n", storage.Facts{Dev: "252:0", Block: true}, nil, "compresses"},
	"zvol":         {"block 230:0 devices/virtual/block/zd0\n", storage.Facts{Dev: "230:0", Block: true}, nil, "zd0 (virtual device) has no device of its own"},
	"ext4 on zvol": {"block 230:1 devices/virtual/block/zd0/zd0p1\nblock 230:0 devices/virtual/block/zd0\nsys/devices/virtual/block/zd0/zd0p1/partition 1\n", onExt4("230:1"), nil, "zd0 (virtual device)"},
	"dm on md on dm": {
		onDM("LVM-abc", "md0") + onMD("raid1", "active") + "sys/devices/virtual/block/md0/slaves/dm-1 x\n" +
			"block 253:1 devices/virtual/block/dm-1\nsys/devices/virtual/block/dm-1/dm/uuid CRYPT-LUKS2-x\nsys/devices/virtual/block/dm-1/slaves/nvme0n1p1 x\n",
		onExt4("253:0"), nil, "dm-1 (device mapper crypt) encrypts",
	},
	"partition of RAID 5": {
		onMD("raid5", "active") + "block 259:9 devices/virtual/block/md0/md0p1\nsys/devices/virtual/block/md0/md0p1/partition 1\n",
		onExt4("259:9"), nil, "parity",
	},
	"partition of loop": {"block 7:0 devices/virtual/block/loop0\nblock 259:9 devices/virtual/block/loop0/loop0p1\nsys/devices/virtual/block/loop0/loop0p1/partition 1\n", onExt4("259:9"), nil, "reads and writes a file"},
	"zoned":             {nvmeDir + "/queue/zoned host-managed\n", onExt4("259:1"), nil, "zone by zone"},
	"protected":         {nvmeDir + "/integrity/format T10-DIF-TYPE1-CRC\n" + nvmeDir + "/integrity/write_generate 1\n", onExt4("259:1"), nil, "protection information"},
	"protection off":    {nvmeDir + "/integrity/format T10-DIF-TYPE1-CRC\n" + nvmeDir + "/integrity/write_generate 0\n" + nvmeDir + "/integrity/read_verify 0\n", onExt4("259:1"), nil, ""},

	"NVMe multipath": {
		"block 259:5 devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1\nsys/devices/virtual/nvme-subsystem/nvme-subsys2/nvme2/transport pcie\nsys/devices/virtual/nvme-subsystem/nvme-subsys2/nvme3/transport rdma\n",
		storage.Facts{Dev: "259:5", Block: true},
		nil, "",
	},
	"NVMe without paths": {"block 259:5 devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1\n", storage.Facts{Dev: "259:5", Block: true}, nil, "no path"},

	"btrfs":          {"mount 50 27 0:33 / /b rw - btrfs /dev/nvme1n1 rw\n", storage.Facts{Dev: "0:33", FS: "btrfs"}, nil, "btrfs (file system) checks checksums"},
	"btrfs, subvol":  {"", storage.Facts{Dev: "0:34", FS: "btrfs"}, nil, "checks checksums"},
	"zfs":            {"", storage.Facts{Dev: "0:34", FS: "zfs"}, nil, "checksums"},
	"bcachefs":       {"mount 50 27 0:33 / /b rw - bcachefs /dev/nvme1n1 rw\n", storage.Facts{Dev: "0:33"}, nil, "checksums"},
	"f2fs":           {"", storage.Facts{Dev: "259:2", FS: "f2fs"}, nil, "compress"},
	"tmpfs":          {"", storage.Facts{Dev: "0:40", FS: "tmpfs"}, nil, "host memory"},
	"new":            {"", storage.Facts{Dev: "259:2", FS: "inventedfs"}, nil, "not known"},
	"nfs":            {onNFS("proto=rdma,sec=krb5"), storage.Facts{Dev: "0:33", FS: "nfs"}, nil, ""},
	"nfs, IPv6":      {onNFS("proto=rdma6"), storage.Facts{Dev: "0:33", FS: "nfs"}, nil, ""},
	"nfs by TCP":     {onNFS("proto=tcp,sec=sys"), storage.Facts{Dev: "0:33", FS: "nfs"}, nil, "not known to use RDMA (proto=tcp)"},
	"nfs, signed":    {onNFS("proto=rdma,sec=krb5i"), storage.Facts{Dev: "0:33", FS: "nfs"}, nil, "signs or encrypts"},
	"nfs, private":   {onNFS("proto=rdma,sec=krb5p"), storage.Facts{Dev: "0:33", FS: "nfs"}, nil, "signs or encrypts"},
	"nfs, elsewhere": {"", storage.Facts{Dev: "0:33", FS: "nfs"}, nil, "not known to use RDMA"},
	"realtime":       {"mount 50 27 259:2 / /r rw - xfs /dev/nvme1n1 rw,rtdev=/dev/nvme0n1\n", onExt4("259:2"), nil, ""},
	"realtime, crypt": {
		onDM("CRYPT-LUKS2-abc-data", "nvme0n1p1") + "mount 50 27 259:2 / /r rw - xfs /dev/nvme1n1 rw,rtdev=/dev/mapper/data\n",
		onExt4("259:2"), nil, "dm-0 (device mapper crypt) encrypts",
	},
	"realtime, hidden": {"mount 50 27 259:2 / /r rw - xfs /dev/nvme1n1 rw,rtdev=/dev/vg/rt\n", onExt4("259:2"), nil, "may keep the file on /dev/vg/rt"},
	"data=journal":     {"mount 50 27 259:2 / /j rw - ext4 /dev/nvme1n1 rw,data=journal\n", onExt4("259:2"), nil, "through its journal"},
	"chattr +j":        {"", storage.Facts{Dev: "259:1", FS: "ext4", Journalled: true}, nil, "through its journal"},
	"fscrypt":          {"", storage.Facts{Dev: "259:1", FS: "ext4", Encrypted: true}, nil, "encrypts this file"},
	"compressed":       {"", storage.Facts{Dev: "259:1", FS: "ext4", Compressed: true}, nil, "compresses this file"},
	"verity file":      {"", storage.Facts{Dev: "259:1", FS: "ext4", Verity: true}, nil, "fs-verity"},

	"overlay": {
		"mount 50 27 0:44 / /merged rw - overlay overlay rw,lowerdir=/low:/low2,upperdir=/up,workdir=/work\nlow/f x\nlow2/f x\nup/f x\n",
		storage.Facts{Dev: "0:44", FS: "overlay"},
		nil, "",
	},
	"overlay, one bad": {
		onMD("raid5", "clean") + "mount 50 27 0:44 / /merged rw - overlay overlay rw,lowerdir=/low,upperdir=/data/up,workdir=/data/work\nlow/f x\ndata/up/f x\n",
		storage.Facts{Dev: "0:44", FS: "overlay"},
		nil, "parity",
	},
	"overlay, hidden": {
		"mount 50 27 0:44 / /merged rw - overlay overlay rw,lowerdir=/var/lib/images/1,upperdir=/var/lib/images/2\n",
		storage.Facts{Dev: "0:44", FS: "overlay"},
		nil, "does not see",
	},
	"overlay, relative": {
		"mount 50 27 0:44 / /merged rw - overlay overlay rw,lowerdir=l/ABC\nl/ABC/f x\n",
		storage.Facts{Dev: "0:44", FS: "overlay"},
		nil, "does not see",
	},
	"overlay, not in mountinfo": {"", storage.Facts{Dev: "0:44", FS: "overlay"}, nil, "does not say"},
}

// hidden is a logical volume below another.
const hidden = "block 253:1 devices/virtual/block/dm-1\nsys/devices/virtual/block/dm-1/dm/name data-real\nsys/devices/virtual/block/dm-1/dm/uuid LVM-abc-real\nsys/devices/virtual/block/dm-1/slaves/nvme0n1p1 x\n"

func TestVerdicts(t *testing.T) {
	for name, c := range cases {
		s, err := Look(&captured{tree(t, drives+c.more), c.tables}, c.facts)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		d := s.Decline(route.NVFS)
		switch {
		case c.changes == "" && d != nil:
			t.Errorf("%s is declined: %s", name, d)
		case c.changes != "" && d == nil:
			t.Errorf("%s is offered: %s", name, strings.Join(s.Tree(), "\n"))
		case d != nil && (!strings.Contains(d.Evidence, c.changes) || d.Fix == "" || d.Route != route.NVFS):
			t.Errorf("%s: decline %q, want %q and a fix", name, d, c.changes)
		}
	}
}

func TestTree(t *testing.T) {
	c := &captured{tree(t, drives+onMD("raid1", "clean")+onDM("LVM-abc", "md0")), nil}
	s, err := Look(c, onExt4("253:0"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ext4 (file system), at /data",
		"└─ dm-0 (device mapper linear), data, type by its UUID",
		"   └─ md0 (RAID raid1)",
		"      └─ nvme0n1p1 (partition)",
		"         └─ nvme0n1 (drive nvme), 0000:3d:00.0",
		"      └─ nvme1n1 (drive nvme), 0000:3e:00.0",
	}
	if d := cmp.Diff(want, s.Tree()); d != "" {
		t.Error(d)
	}
}

// The drive of another host is drawn with the adapter that reaches it, if that is known.
func TestAdapter(t *testing.T) {
	const nics = `
sys/class/infiniband/mlx5_0/device/uevent DRIVER=mlx5_core
sys/class/infiniband/mlx5_0/ports/1/gids/0 fe80:0000:0000:0000:0000:0000:0000:0001
sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0 eth0
sys/class/infiniband/mlx5_1/device/uevent PCI_SLOT_NAME=0000:65:00.0
sys/class/infiniband/mlx5_1/ports/1/gids/3 0000:0000:0000:0000:0000:ffff:c000:0207
sys/class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/3 eth1
`
	const remote = "block 259:7 devices/virtual/nvme-fabrics/ctl/nvme4/nvme4n1\nsys/devices/virtual/nvme-fabrics/ctl/nvme4/nvme4n1/device/transport "
	const address = "sys/devices/virtual/nvme-fabrics/ctl/nvme4/nvme4n1/device/address traddr=192.0.2.1,trsvcid=4420"
	for name, c := range map[string]struct{ more, want string }{
		"interface":     {"rdma\n" + address + ",host_iface=eth1\n" + nics, "└─ mlx5_1 (network adapter), 0000:65:00.0, to 192.0.2.1:4420"},
		"address":       {"rdma\n" + address + ",host_traddr=192.0.2.7\n" + nics, "└─ mlx5_1 (network adapter), 0000:65:00.0, to 192.0.2.1:4420"},
		"other address": {"rdma\n" + address + ",host_traddr=192.0.2.8\n" + nics, ""},
		"no address":    {"rdma\n" + address + ",host_traddr=x\n" + nics, ""},
		"one of two":    {"rdma\n" + address + "\n" + nics, ""},
		"the only one":  {"rdma\n" + address + "\nsys/class/infiniband/rxe0/node_type 1\n", "└─ rxe0 (network adapter), to 192.0.2.1:4420"},
		"none":          {"rdma\n" + address + "\n", ""},
		"TCP":           {"tcp\n" + address + ",host_iface=eth1\n" + nics, ""},
	} {
		s, err := Look(&captured{tree(t, drives+remote+c.more), nil}, storage.Facts{Dev: "259:7", Block: true})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(s.Tree()[1:], "\n")
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if d := s.DeclineUnhooked(route.NVFS, []string{"nvme_rdma", "nvme_tcp"}); d != nil {
			t.Errorf("%s: %v", name, d)
		}
	}
	s, err := Look(&captured{tree(t, drives+"block 259:5 devices/virtual/nvme-subsystem/nvme-subsys2/nvme2n1\nsys/devices/virtual/nvme-subsystem/nvme-subsys2/nvme3/transport rdma\n"+
		"sys/devices/virtual/nvme-subsystem/nvme-subsys2/nvme3/address traddr=192.0.2.1,trsvcid=4420,host_iface=eth0\n"+nics), nil}, storage.Facts{Dev: "259:5", Block: true})
	if err != nil || s.Tree()[2] != "   └─ mlx5_0 (network adapter), to 192.0.2.1:4420" {
		t.Errorf("multipath: %q, %v", s.Tree(), err)
	}
}

// What a stack is called must change with the stack, and only with it.
func TestKey(t *testing.T) {
	look := func(more string) string {
		s, err := Look(&captured{tree(t, drives+onMD("raid1", "clean")+more), nil}, onExt4("9:0"))
		if err != nil {
			t.Fatal(err)
		}
		return s.Key()
	}
	first := look("")
	if again := look(""); again != first {
		t.Errorf("the same stack has two keys:\n%s\n%s", first, again)
	}
	for what, more := range map[string]string{
		"level":        "sys/devices/virtual/block/md0/md/level raid0\n",
		"another disk": nvmeDir + "/diskseq 10\n",
		"a third leg":  "sys/devices/virtual/block/md0/slaves/vda x\n",
		"mount point":  "mount 60 27 9:0 / /elsewhere rw - xfs /dev/md0 rw\n",
		"state":        "sys/devices/virtual/block/md0/md/array_state inactive\n",
	} {
		if look(more) == first {
			t.Errorf("%s: the key does not change", what)
		}
	}
}

// Two SCSI drives behind one adapter and one behind another, in two arrays.
const scsi = `
block 8:0 devices/pci0000:00/0000:00:05.0/host0/target0:0:0/0:0:0:0/block/sda
block 8:16 devices/pci0000:00/0000:00:06.0/host1/target1:0:0/1:0:0:0/block/sdb
block 8:32 devices/pci0000:00/0000:00:05.0/host0/target0:0:1/0:0:1:0/block/sdc
sys/devices/pci0000:00/0000:00:05.0/host0/target0:0:0/0:0:0:0/block/sda/device/driver -> ../../../bus/scsi/drivers/sd
sys/devices/pci0000:00/0000:00:06.0/host1/target1:0:0/1:0:0:0/block/sdb/device/driver -> ../../../bus/scsi/drivers/sd
sys/devices/pci0000:00/0000:00:05.0/host0/target0:0:1/0:0:1:0/block/sdc/device/driver -> ../../../bus/scsi/drivers/sd
sys/bus/pci/devices/0000:00:05.0/driver -> ../../../bus/pci/drivers/mpt3sas
sys/bus/pci/devices/0000:00:06.0/driver -> ../../../bus/pci/drivers/ahci
block 9:1 devices/virtual/block/md1
sys/devices/virtual/block/md1/md/level raid0
sys/devices/virtual/block/md1/md/array_state clean
sys/devices/virtual/block/md1/slaves/sda x
sys/devices/virtual/block/md1/slaves/sdb x
block 9:2 devices/virtual/block/md2
sys/devices/virtual/block/md2/md/level raid1
sys/devices/virtual/block/md2/md/array_state clean
sys/devices/virtual/block/md2/slaves/sda x
sys/devices/virtual/block/md2/slaves/sdc x
mount 41 27 9:1 / /s rw - ext4 /dev/md1 rw
mount 42 27 9:2 / /t rw - ext4 /dev/md2 rw
`

func TestDrivers(t *testing.T) {
	c := &captured{tree(t, drives+onMD("raid1", "clean")+scsi+"sys/devices/virtual/block/md0/slaves/vda x\nmount 50 27 0:33 / /n rw - nfs4 server:/x rw,proto=rdma\n"), nil}
	for _, tt := range []struct {
		facts  storage.Facts
		hooked []string
		bad    string
	}{
		{onExt4("259:1"), []string{"nvme"}, ""},
		{onExt4("259:1"), []string{"nvme_rdma"}, "nvme0n1 (drive nvme) has no nvidia-fs hooks"},
		{onExt4("9:0"), []string{"nvme"}, "vda (drive virtio_blk) has no nvidia-fs hooks"},
		{onExt4("9:0"), []string{"nvme", "virtio_blk"}, "md0 (RAID raid1) has drives of different drivers: nvme0n1 by nvme, vda by virtio_blk"},
		{onExt4("9:1"), []string{"scsi_mod"}, "md1 (RAID raid0) has drives of different drivers: sda by scsi_mod on mpt3sas, sdb by scsi_mod on ahci"},
		{onExt4("9:2"), []string{"scsi_mod"}, ""},
		{storage.Facts{Dev: "0:33", FS: "nfs"}, []string{"rpcrdma"}, ""},
		{storage.Facts{Dev: "0:33", FS: "nfs"}, []string{"nvme"}, "nfs4 (network rpcrdma)"},
	} {
		s, err := Look(c, tt.facts)
		if err != nil {
			t.Fatal(err)
		}
		d := s.DeclineUnhooked(route.NVFS, tt.hooked)
		if (d == nil) != (tt.bad == "") || d != nil && !strings.HasPrefix(d.Evidence, tt.bad) {
			t.Errorf("%s with %v: %v, want %q", tt.facts.Dev, tt.hooked, d, tt.bad)
		}
	}
}

// A machine that shows nothing, and one that shows nonsense.
func TestUnreadable(t *testing.T) {
	for name, c := range map[string]struct {
		tree  string
		facts storage.Facts
		want  error
	}{
		"no /proc":       {"sys/x y\n", onExt4("259:1"), fs.ErrNotExist},
		"no /sys":        {"mount 27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n", onExt4("259:1"), fs.ErrNotExist},
		"no such device": {drives, storage.Facts{Dev: "8:99", Block: true}, fs.ErrNotExist},
		"slave missing":  {drives + onDM("LVM-x", "gone"), onExt4("253:0"), fs.ErrNotExist},
		"a circle":       {drives + onDM("LVM-x", "dm-0"), onExt4("253:0"), errTooLarge},
	} {
		s, err := Look(&captured{tree(t, c.tree), nil}, c.facts)
		if !errors.Is(err, c.want) || s != nil {
			t.Errorf("%s: %v, %v, want %v", name, s, err, c.want)
		}
		if d := Unknown(route.P2PDMA, err); d.Route != route.P2PDMA || d.Evidence == "" {
			t.Errorf("%s: decline %v", name, d)
		}
	}
}

func TestParseTypes(t *testing.T) {
	good := func(types ...string) *tableCall {
		c := &tableCall{DataStart: headerSize}
		encodeTypes(c, types)
		return c
	}
	if got, err := parseTypes(good("linear", "linear", "crypt")); err != nil || !slices.Equal(got, []string{"linear", "crypt"}) {
		t.Errorf("types %q, %v", got, err)
	}
	for name, damage := range map[string]func(*tableCall){
		"full":         func(c *tableCall) { c.Flags |= flagFull },
		"no target":    func(c *tableCall) { c.TargetCount = 0 },
		"backwards":    func(c *tableCall) { clear(c.Data[20:24]) },
		"no name":      func(c *tableCall) { clear(c.Data[24:40]) },
		"too many":     func(c *tableCall) { c.TargetCount = 1 << 30 },
		"before start": func(c *tableCall) { c.DataStart = 8 },
		"behind end":   func(c *tableCall) { c.DataStart = 1 << 31 },
	} {
		c := good("linear", "crypt")
		damage(c)
		if types, err := parseTypes(c); !errors.Is(err, errTable) {
			t.Errorf("%s: %q, %v", name, types, err)
		}
	}
}

func FuzzLook(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		f.Add(cases[name].more, cases[name].facts.Dev, cases[name].facts.FS)
	}
	f.Fuzz(func(t *testing.T, more, number, name string) {
		root := fstest.MapFS{}
		for file, content := range tree(t, drives+more) {
			if fs.ValidPath(file) {
				root[file] = content
			}
		}
		s, err := Look(&captured{root, nil}, storage.Facts{Dev: number, FS: name})
		if err == nil && len(s.Layers) == 0 {
			t.Error("a stack without layers")
		}
	})
}

// This machine's own stack can be looked at, whatever it is.
func TestThisMachine(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f, err := storage.Adopt(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Look(dev.Host(), f.Facts)
	if err != nil {
		t.Skip("needs /proc and /sys: ", err)
	}
	if s.Key() == "" || len(s.Tree()) != len(s.Layers) {
		t.Errorf("%q", s.Tree())
	}
}
