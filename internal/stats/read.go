package stats

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/env"
)

// A Snapshot is the contents of a segment at a moment.
type Snapshot struct {
	PID     int
	UID     int
	Command string
	Started time.Time
	Alive   bool
	Routes  []string // names by number
	Totals  Totals   // of the process
	Files   []FileSnapshot
}

// A FileSnapshot is what a segment has of one file.
type FileSnapshot struct {
	Name   string
	Open   bool
	Totals Totals
	Description
}

// Read reads the totals of a process: the segment that the process made, according
// to the kernel. After an ID was reused, that of the present process comes first.
func Read(pid int) (*Snapshot, error) {
	e := newest(func(e *entry) bool { return int(e.desc.Cpid) == pid })[pid]
	if e == nil {
		return nil, missing(pid)
	}
	return e.read()
}

// newest returns the segments with our statistics, one for each process ID, of those that
// are wanted.
func newest(wanted func(*entry) bool) map[int]*entry {
	best := map[int]*entry{}
	for _, e := range entries() {
		pid := int(e.desc.Cpid)
		if e.desc.Segsz >= headerSize && wanted(&e) && (best[pid] == nil || e.before(best[pid])) && e.credible() && e.marked() {
			best[pid] = &e
		}
	}
	return best
}

// OfProcess reads all totals with a process ID that this user may read: a process that
// executes another program leaves one more.
func OfProcess(pid int) []*Snapshot {
	var list []*Snapshot
	for _, e := range entries() {
		if pid == int(e.desc.Cpid) && e.desc.Segsz >= headerSize && e.credible() && e.marked() {
			if s, err := e.read(); err == nil {
				list = append(list, s)
			}
		}
	}
	return list
}

// List reads the totals of the processes that run and that this user may read, by
// start time; with ended, also of those that have ended, after the others. A segment
// that cannot be read is left out: its process may just have ended.
func List(ended bool) []*Snapshot {
	var list []*Snapshot
	for _, e := range newest(func(e *entry) bool { return ended || e.alive() }) {
		if s, err := e.read(); err == nil {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *Snapshot) int {
		if a.Alive != b.Alive {
			if a.Alive {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.PID, b.PID))
	})
	return list
}

// before orders the segments of one process ID.
func (e *entry) before(other *entry) bool {
	if a, b := e.alive(), other.alive(); a != b {
		return a
	}
	return e.desc.Ctime >= other.desc.Ctime
}

// marked reports that the segment has our statistics, of any version: programs use
// System V memory for other purposes, too.
func (e *entry) marked() bool {
	mark, err := e.mark()
	return err == nil && mark == magic
}

// mark is the start of a segment.
func (e *entry) mark() (mark [8]byte, err error) {
	err = e.view(func(mem []byte) error {
		mark = [8]byte(mem)
		return nil
	})
	return mark, err
}

// missing says that there is no segment. Version 1 was a file, which does not tell
// who made it.
func missing(pid int) error {
	for _, dir := range []string{env.Get("XDG_RUNTIME_DIR"), "/dev/shm"} {
		if paths, _ := filepath.Glob(filepath.Join(dir, fmt.Sprintf("culvert-*-%d.stats", pid))); len(paths) > 0 {
			return versionError(1)
		}
	}
	return missingError(pid)
}

func versionError(found uint32) error {
	return fmt.Errorf("statistics version %d is not supported (want %d): use the culvert command of the program's version", found, layoutVersion)
}

// read returns the contents. Process, user and state come from the kernel.
func (e *entry) read() (s *Snapshot, err error) {
	alive := e.alive() // before this process attaches it
	err = e.view(func(mem []byte) error {
		s, err = snapshot(mem)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("statistics of process %d: %w", e.desc.Cpid, err)
	}
	s.PID, s.UID, s.Alive = int(e.desc.Cpid), int(e.desc.Perm.Cuid), alive
	return s, nil
}

// snapshot copies everything between two changes of slots, and reads the copy: its
// owner may write meanwhile. It does not touch unused slots, because that would
// allocate their memory.
func snapshot(mem []byte) (*Snapshot, error) {
	if len(mem) < headerSize {
		return nil, errors.New("not a statistics segment")
	}
	h := headerAt(mem)
	if h.Magic != magic {
		return nil, errors.New("not a statistics segment")
	}
	if h.Version != layoutVersion || h.Slots != slots || len(mem) < segmentSize {
		return nil, versionError(h.Version)
	}
	from := at(mem)
	for range 1000 {
		before := h.Changes.Load()
		copied := make([]byte, segmentSize)
		copy(copied, mem[:headerSize+from.used()*slotSize])
		if before%2 == 0 && h.Changes.Load() == before {
			return at(copied).read(), nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("the process died while it changed the file table")
}

// used counts the slots before the first unused one.
func (s *segment) used() int {
	for i := range s.Slots {
		if s.Slots[i].State.Load() == free {
			return i
		}
	}
	return slots
}

func (s *segment) read() *Snapshot {
	h := &s.Header
	snap := &Snapshot{Command: text(h.Command[:]), Started: time.Unix(0, h.Started)}
	for i := range h.RouteNames {
		snap.Routes = append(snap.Routes, text(h.RouteNames[i][:]))
	}
	var all counts
	for i := range s.used() {
		slot := &s.Slots[i]
		state := slot.State.Load()
		all.add(&slot.Block)
		if i != others {
			snap.Files = append(snap.Files, FileSnapshot{text(slot.Name[:]), state == open, slot.Block.Totals(), slot.description()})
		}
	}
	snap.Totals = all.totals()
	return snap
}

// description returns GPU -1 if it is unknown.
func (s *slot) description() Description {
	return Description{int(s.GPU) - 1, float64(s.Ceiling), text(s.Declined[:])}
}

// text is what comes before the first NUL.
func text(b []byte) string { return unix.ByteSliceToString(b) }

// A missingError is that of a process without totals, by its ID. It is fs.ErrNotExist.
type missingError int

func (e missingError) Error() string {
	return fmt.Sprintf("process %d has moved nothing through Culvert, ended more than a minute ago, or belongs to another user", int(e))
}

func (missingError) Is(target error) bool { return target == fs.ErrNotExist }
