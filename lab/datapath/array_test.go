package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/dev"
)

// Requests of md, linux/raid/md_u.h.
const (
	mdSetInfo = 0x40480923
	mdAddDisk = 0x40140921
	mdRun     = 0x400c0930
	mdStop    = 0x932
)

// An mdInfo is mdu_array_info_t.
type mdInfo struct {
	Major, Minor, Patch int32
	Created             uint32
	Level, Size         int32 // Size in KiB of a drive
	Disks, RAIDDisks    int32
	Number              int32
	NotPersistent       int32
	Updated             uint32
	State               int32
	Active, Working     int32
	Failed, Spare       int32
	Layout, Chunk       int32
}

// An mdDisk is mdu_disk_info_t.
type mdDisk struct{ Number, Major, Minor, Place, State int32 }

// array makes a RAID of drives. It skips the test if the kernel does not have the level.
func array(t *testing.T, level int32, drives ...string) string {
	t.Helper()
	const name = "md127"
	if err := os.WriteFile("/sys/module/md_mod/parameters/new_array", []byte(name), 0); err != nil {
		t.Skip("needs a kernel with md: ", err)
	}
	path := filepath.Join("/dev", name)
	node, err := dev.Host().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	const clean, active, inSync = 1, 1 << 1, 1 << 2
	info := mdInfo{
		Minor: 90, Level: level, Size: 64<<10 - 128, Disks: int32(len(drives)), RAIDDisks: int32(len(drives)), Number: 127,
		State: clean, Active: int32(len(drives)), Working: int32(len(drives)), Chunk: 64 << 10,
	}
	if level == 5 {
		info.Layout = 2 // left symmetric
	}
	if level == 1 {
		info.Chunk = 0
	}
	err = dev.Ioctl(node, mdSetInfo, &info)
	for i, d := range drives {
		var st unix.Stat_t
		err = errors.Join(err, unix.Stat(d, &st), dev.Ioctl(node, mdAddDisk, &mdDisk{
			int32(i), int32(unix.Major(st.Rdev)), int32(unix.Minor(st.Rdev)), int32(i), active | inSync,
		}))
	}
	if err == nil {
		err = dev.Ioctl(node, mdRun, &[3]int32{})
	}
	if err != nil {
		node.Close()
		t.Skipf("needs a kernel with RAID %d: %v", level, err)
	}
	t.Cleanup(func() {
		if err := errors.Join(node.Ioctl(mdStop, nil), node.Close()); err != nil {
			t.Error(err)
		}
	})
	return path
}
