package stats

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Snapshot is the contents of a segment at a moment.
type Snapshot struct {
	Path    string
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
}

// Find returns the segment of a process in one of the directories: this user's, or
// any other that may be read.
func Find(dirs []string, pid int) (string, error) {
	for _, dir := range dirs {
		for _, user := range []string{fmt.Sprint(os.Getuid()), "*"} {
			paths, _ := filepath.Glob(filepath.Join(dir, fmt.Sprintf("culvert-%s-%d.stats", user, pid)))
			if len(paths) > 0 {
				return paths[0], nil
			}
		}
	}
	return "", fmt.Errorf("process %d has moved nothing through Culvert, or ended more than a minute ago: %w in %s", pid, fs.ErrNotExist, strings.Join(dirs, " or "))
}

// Read reads a segment.
func Read(path string) (*Snapshot, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() < segmentSize {
		return nil, fmt.Errorf("%s: not a statistics file: %d bytes, want %d", path, st.Size(), segmentSize)
	}
	s, err := snapshot(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.Path = path
	s.Alive = errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
	return s, nil
}

// snapshot reads everything between two changes of slots. It does not map the file,
// because reading an unused slot through a mapping would allocate its memory.
func snapshot(f io.ReaderAt) (*Snapshot, error) {
	mem := make([]byte, segmentSize)
	s := at(mem)
	h := &s.Header
	for range 1000 {
		if _, err := f.ReadAt(mem, 0); err != nil { // the header first
			return nil, err
		}
		if h.Magic != magic {
			return nil, errors.New("not a statistics file")
		}
		if h.Version != layoutVersion || h.Slots != slots {
			return nil, fmt.Errorf("statistics version %d is not supported (want %d): use the culvert command of the program's version", h.Version, layoutVersion)
		}
		var after [8]byte
		if _, err := f.ReadAt(after[:], changesOffset); err != nil {
			return nil, err
		}
		if before := h.Changes.Load(); before%2 == 0 && binary.NativeEndian.Uint64(after[:]) == before {
			return s.read(), nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil, errors.New("the process died while it changed the file table")
}

func (s *segment) read() *Snapshot {
	h := &s.Header
	snap := &Snapshot{PID: int(h.PID), UID: int(h.UID), Command: text(h.Command[:]), Started: time.Unix(0, h.Started)}
	for i := range h.RouteNames {
		snap.Routes = append(snap.Routes, text(h.RouteNames[i][:]))
	}
	var all counts
	for i := range s.Slots {
		slot := &s.Slots[i]
		state := slot.State.Load()
		if state == free {
			continue
		}
		all.add(&slot.Block)
		if i != others {
			snap.Files = append(snap.Files, FileSnapshot{text(slot.Name[:]), state == open, slot.Block.Totals()})
		}
	}
	snap.Totals = all.totals()
	return snap
}

// text is what comes before the first NUL.
func text(b []byte) string { return unix.ByteSliceToString(b) }
