package transfer

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/storage"
)

// syncFacts are what decides whether the files of a group are put on stable storage by one
// syncfs or by an fsync each. For 2000 small files on a quiet ext4, syncfs takes a quarter
// off the whole copy: an fsync flushes the cache of the disk, also if the file is there.
type syncFacts struct {
	fs      int64 // magic number of the destination's file system
	reports bool  // syncfs reports what could not be written: since Linux 5.8
	files   int
	dirty   int64 // bytes of all programs that are not written yet; -1 if unknown
}

const (
	syncedAlone = 8         // files that are not worth a sync of the whole file system
	maxDirty    = 256 << 20 // of all programs: syncfs waits for them, too
)

// syncable are file systems whose syncfs waits for data and reports errors. That of
// network, stacked and FUSE file systems may do less.
var syncable = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC}

// together reports whether syncfs is safe, and does not wait long for others.
func (f *syncFacts) together() bool {
	return f.reports && slices.Contains(syncable, f.fs) && f.files > syncedAlone && f.dirty >= 0 && f.dirty <= maxDirty
}

// reportsErrors reports whether syncfs of a kernel release reports what it could not write.
func reportsErrors(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 8
}

var kernelReports = sync.OnceValue(func() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && reportsErrors(unix.ByteSliceToString(u.Release[:]))
})

// syncTogether puts the files of a group on stable storage that are on the file system of
// the destination, if one call can do so. Otherwise each is synced by itself, which also
// finds the one that an error is about.
func (c *groupWriter) syncTogether(group []*waiting) (dev uint64, done bool) {
	fd := int(c.dst.File().Fd()) // opened before anything was written: it gets all errors since
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &fs) != nil || unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	facts := syncFacts{fs: int64(fs.Type), reports: kernelReports(), files: len(group), dirty: storage.Dirty(os.DirFS("/"))}
	if c.opts.apart || !facts.together() {
		return 0, false
	}
	c.opts.step()
	return st.Dev, c.opts.syncfs(fd) == nil
}

// startWriting has the kernel write the files of a group, so that the syncs that follow
// wait together.
func startWriting(group []*waiting) {
	for _, w := range group {
		f := flusher{fd: int(w.out.Fd()), sync: w.opts.flush}
		w.err = f.start(w.source.Size)
	}
}
