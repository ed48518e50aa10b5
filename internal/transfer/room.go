package transfer

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/human"
)

// plainSystems are file systems whose files need their size: others compress, share or
// keep them elsewhere.
var plainSystems = []int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC}

// checkRoom reports a file system that cannot hold what is missing of a copy. A file that
// is replaced keeps its room until the copy is complete. What may fit is tried.
func (c *fileCopy) checkRoom(out *os.File, start int64) error {
	var st unix.Statfs_t
	if unix.Fstatfs(int(out.Fd()), &st) != nil || st.Blocks == 0 || !slices.Contains(plainSystems, int64(st.Type)) {
		return nil
	}
	blocks := st.Bavail
	if os.Geteuid() == 0 {
		blocks = st.Bfree
	}
	free, need := int64(min(blocks, math.MaxInt64/uint64(st.Bsize)))*int64(st.Bsize), c.source.Size-start
	if need > free {
		need = dataBetween(c.in, start, c.source.Size)
	}
	if need <= free {
		return nil
	}
	return &fullError{unix.ENOSPC, fmt.Sprintf("the file system of %s has %s free, %s are needed", c.res.Dest, human.Size(free), human.Size(need))}
}

// dataBetween returns how many bytes of a range are not in holes that a copy keeps.
func dataBetween(in *os.File, start, end int64) (sum int64) {
	e := &extents{fd: int(in.Fd()), size: end}
	for off := start; ; {
		begin, n := e.next(off, math.MaxInt64)
		if n == 0 {
			return sum
		}
		sum, off = sum+n, begin+n
	}
}

// A fullError is the error of a full file system: the cause first, then where it was met.
type fullError struct {
	err  error
	text string
}

func (e *fullError) Error() string { return fmt.Sprintf("%v (%s)", unix.ENOSPC, e.text) }

func (e *fullError) Unwrap() error { return e.err }

// full puts the cause of an error first if it is a full file system.
func full(err error) error {
	if _, done := errors.AsType[*fullError](err); done || !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return &fullError{err, strings.TrimSuffix(err.Error(), ": "+unix.ENOSPC.Error())}
}
