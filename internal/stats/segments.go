package stats

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Commands of shmctl that golang.org/x/sys does not have. Both work by index and
// need no /proc.
const (
	shmStat = 13
	shmInfo = 14
)

// An entry is a segment as the kernel describes it. The kernel keeps the user and
// the process that made a segment; they cannot be changed.
type entry struct {
	id   int
	desc unix.SysvShmDesc
}

// entries lists the System V segments that this user may read, ours and others.
func entries() (list []entry) {
	var info unix.SysvShmDesc // larger than the shm_info that SHM_INFO writes
	last, err := unix.SysvShmCtl(0, shmInfo, &info)
	if err != nil {
		return nil // the kernel has no System V shared memory
	}
	for i := range last + 1 {
		var e entry
		if e.id, err = unix.SysvShmCtl(i, shmStat, &e.desc); err == nil {
			list = append(list, e)
		}
	}
	return list
}

// create makes a segment that only this user may attach.
func create() (id int, mem []byte, err error) {
	id, err = unix.SysvShmGet(unix.IPC_PRIVATE, segmentSize, unix.IPC_CREAT|0o600)
	if err != nil {
		return 0, nil, os.NewSyscallError("shmget", err)
	}
	mem, err = unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return 0, nil, errors.Join(os.NewSyscallError("shmat", err), remove(id))
	}
	return id, mem, nil
}

func remove(id int) error {
	_, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	return os.NewSyscallError("shmctl", err)
}

// view calls do with the memory of a segment, read-only.
func (e *entry) view(do func(mem []byte) error) error {
	mem, err := unix.SysvShmAttach(e.id, 0, unix.SHM_RDONLY)
	if err != nil {
		return os.NewSyscallError("shmat", err)
	}
	return errors.Join(do(mem), os.NewSyscallError("shmdt", unix.SysvShmDetach(mem)))
}

// alive reports that the process that made the segment runs. Its forked children
// and readers attach the segment, too.
func (e *entry) alive() bool { return e.desc.Nattch > 0 && exists(int(e.desc.Cpid)) }

func exists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// credible reports that the segment belongs to the process with this ID. After an ID
// was reused, the segment of an earlier process of another user must not pass for
// that of the present one. Root is trusted: a service makes its segment before it
// gives up its rights.
func (e *entry) credible() bool {
	pid, user := int(e.desc.Cpid), e.desc.Perm.Cuid
	if user == 0 || int(user) == os.Geteuid() || !exists(pid) {
		return true
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return slices.Contains(users(string(status)), fmt.Sprint(user))
}

// users returns the user IDs of a process: real, effective, saved, file system.
func users(status string) []string {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return strings.Fields(ids)
		}
	}
	return nil
}

const (
	// keep is how long a segment stays after its process has ended.
	keep = time.Minute
	// maxEnded is how many segments of ended processes a user may have. The kernel
	// has 4096 for all users and programs (kernel.shmmni).
	maxEnded = 256
)

// sweep removes the segments of this user's ended processes, except the latest
// ones. It ignores errors, because the next process tries again.
func sweep(list []entry, now time.Time) {
	for _, e := range surplus(list, os.Geteuid(), now) {
		if e.ours() {
			_ = remove(e.id)
		}
	}
}

// surplus returns the segments of a user's ended processes that are too old or too
// many. Some may be those of other programs.
func surplus(list []entry, user int, now time.Time) []entry {
	ended := slices.DeleteFunc(slices.Clone(list), func(e entry) bool {
		d := &e.desc
		return d.Nattch > 0 || d.Segsz != segmentSize || int(d.Perm.Cuid) != user || d.Perm.Key != unix.IPC_PRIVATE
	})
	slices.SortFunc(ended, func(a, b entry) int { return cmp.Compare(b.lastUse(), a.lastUse()) }) // the latest first
	recent := slices.IndexFunc(ended, func(e entry) bool { return now.Sub(time.Unix(e.lastUse(), 0)) > keep })
	if recent < 0 {
		recent = len(ended)
	}
	return ended[min(recent, maxEnded):]
}

// lastUse is when the segment was detached, or made and never attached, in seconds
// since 1970.
func (e *entry) lastUse() int64 { return max(e.desc.Dtime, e.desc.Ctime) }

// ours reports that Culvert made the segment. One without contents was made by a
// process that was killed at that moment.
func (e *entry) ours() bool {
	mark, err := e.mark()
	return err == nil && (mark == magic || mark == [8]byte{})
}
