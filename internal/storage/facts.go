package storage

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Facts are what the descriptor tells without I/O.
type Facts struct {
	Block  bool   `json:"block_device"`
	Dev    string `json:"device"` // "259:1": of the file system, or of the block device itself
	Inode  uint64 `json:"inode"`
	FS     string `json:"file_system"` // "ext4"
	Direct Direct `json:"o_direct"`
	// Capacity is the size of a block device; 0 for a file, whose size changes.
	Capacity int64 `json:"capacity,omitempty"`
	// What the file system does to this file's bytes in host memory.
	Encrypted  bool `json:"encrypted,omitempty"`
	Compressed bool `json:"compressed,omitempty"`
	Verity     bool `json:"verity,omitempty"`
	Journalled bool `json:"journalled,omitempty"`
}

// Direct is what O_DIRECT requires of a request.
type Direct struct {
	Supported bool   `json:"supported"`
	MemAlign  int    `json:"memory_alignment,omitempty"`
	OffAlign  int    `json:"offset_alignment,omitempty"`
	Source    string `json:"source"` // how we know
}

// Aligned reports whether a request of n bytes at off meets the alignment.
func (d Direct) Aligned(off, n int64) bool {
	return d.Supported && d.OffAlign > 0 && (off|n)%int64(d.OffAlign) == 0
}

func factsOf(fd int) (Facts, error) {
	var st unix.Statx_t
	const mask = unix.STATX_BASIC_STATS | unix.STATX_DIOALIGN
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, mask, &st); err != nil {
		return Facts{}, fmt.Errorf("statx: %w", err)
	}
	f := Facts{Inode: st.Ino}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Dev = fmt.Sprintf("%d:%d", st.Dev_major, st.Dev_minor)
	case unix.S_IFBLK:
		f.Block = true
		f.Dev = fmt.Sprintf("%d:%d", st.Rdev_major, st.Rdev_minor)
	default:
		return Facts{}, ErrFileType
	}
	f.FS = fileSystem(fd)
	f.Encrypted = st.Attributes&unix.STATX_ATTR_ENCRYPTED != 0
	f.Compressed = st.Attributes&unix.STATX_ATTR_COMPRESSED != 0
	f.Verity = st.Attributes&unix.STATX_ATTR_VERITY != 0
	f.Journalled = !f.Block && journalled(fd)
	f.Direct = directOf(fd, &st)
	return f, nil
}

const journalData = 0x4000 // FS_JOURNAL_DATA_FL, chattr +j

// journalled reports whether the data of a file goes through a journal. statx has no
// bit for it; a file system without such flags answers with an error.
func journalled(fd int) bool {
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	return err == nil && flags&journalData != 0
}

// directOf reads the alignment that statx reports. A zero dio_mem_align means "no
// O_DIRECT on this file" only if the kernel filled it in: before Linux 6.1, and on
// some file systems, STATX_DIOALIGN is missing from the mask. Then open must be tried.
func directOf(fd int, st *unix.Statx_t) Direct {
	if st.Mask&unix.STATX_DIOALIGN != 0 {
		if st.Dio_mem_align == 0 {
			return Direct{Source: "statx: no O_DIRECT on this file"}
		}
		return Direct{true, int(st.Dio_mem_align), int(st.Dio_offset_align), "statx"}
	}
	try, err := unix.Open(procFD(fd), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return Direct{Source: "open with O_DIRECT: " + err.Error()}
	}
	unix.Close(try)
	return Direct{true, 4096, 4096, "open with O_DIRECT; statx does not report the alignment, 4096 is assumed"}
}

// magics are the names of statfs's f_type. Other file systems are printed by number.
var magics = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4", // ext2 and ext3 too
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.RAMFS_MAGIC:           "ramfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.V9FS_MAGIC:            "9p",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.SQUASHFS_MAGIC:        "squashfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	0x0bd00bd0:                 "lustre",
	0x19830326:                 "beegfs",
	0x47504653:                 "gpfs",
	0x2fc12fc1:                 "zfs",
	0x6a656a63:                 "virtiofs",
}

func fileSystem(fd int) string {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return "unknown (" + err.Error() + ")"
	}
	if name, ok := magics[int64(st.Type)]; ok {
		return name
	}
	return fmt.Sprintf("unknown (%#x)", st.Type)
}
