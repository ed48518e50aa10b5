package stats

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// keep is how long a segment stays after its process was found dead.
const keep = time.Minute

// sweep notes in the segments of this user's dead processes when they were found,
// and removes those found long enough ago. It ignores errors, because the next
// process tries again.
func sweep(dir string, now time.Time) {
	paths, _ := filepath.Glob(filepath.Join(dir, fmt.Sprintf("culvert-%d-*.stats", os.Getuid())))
	for _, path := range paths {
		f := openDead(path)
		if f == nil {
			continue
		}
		if ended, ok := mark(f, now); ok && now.Sub(ended) > keep {
			os.Remove(path)
		}
		f.Close()
	}
}

// openDead opens and locks a segment whose process has ended, or returns nil.
func openDead(path string) *os.File {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

func dead(path string) bool {
	f := openDead(path)
	if f == nil {
		return false
	}
	f.Close()
	return true
}

// mark notes in a dead process's segment when it was found first, and returns that
// time.
func mark(f *os.File, now time.Time) (ended time.Time, ok bool) {
	var word [8]byte
	if _, err := f.ReadAt(word[:], endedOffset); err != nil {
		return ended, false // not a segment yet
	}
	if at := int64(binary.NativeEndian.Uint64(word[:])); at != 0 {
		return time.Unix(0, at), true
	}
	binary.NativeEndian.PutUint64(word[:], uint64(now.UnixNano()))
	_, err := f.WriteAt(word[:], endedOffset)
	return now, err == nil
}
