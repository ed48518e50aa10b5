package transfer

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// JournalName is the file in a destination that lists what an unfinished copy
// has done. It goes away with the last file.
const JournalName = ".culvert-cp.journal"

const journalVersion = 1

// A journalHead is the first line of a journal. ID is in the names of temporary
// files, so that those of a copy that died can be told.
type journalHead struct {
	Version int    `json:"culvert_cp"`
	Source  string `json:"source"`
	ID      string `json:"id"`
}

// A journalLine is each of the others: a file that is complete, or a directory
// that was made and gets its mode at the end.
type journalLine struct {
	Done    string    `json:"done,omitempty"` // path below the source
	Size    int64     `json:"bytes,omitempty"`
	ModTime time.Time `json:"modified,omitzero"`
	Made    string    `json:"made,omitempty"`
}

// A journal remembers the files that are complete and on storage.
type journal struct {
	path string
	id   string
	done map[string]journalLine
	made map[string]bool

	mu   sync.Mutex
	file *os.File // locked while the copy runs
}

func newJournal(dst string) *journal {
	return &journal{path: filepath.Join(dst, JournalName), done: map[string]journalLine{}, made: map[string]bool{}}
}

// readJournal looks at the journal of a destination without changing it; nil
// where there is none.
func readJournal(dst, source string) (*journal, error) {
	j := newJournal(dst)
	text, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := j.parse(text, source); err != nil {
		return nil, err
	}
	return j, nil
}

// parse reads a journal. A last line that is not whole is what a crash leaves.
func (j *journal) parse(text []byte, source string) error {
	r := bufio.NewReader(bytes.NewReader(text))
	for n := 0; ; n++ {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return nil // it died before it began
			}
			break
		}
		if n > 0 {
			var l journalLine
			if json.Unmarshal(line, &l) != nil {
				continue
			}
			if l.Done != "" {
				j.done[l.Done] = l
			}
			if l.Made != "" {
				j.made[l.Made] = true
			}
			continue
		}
		var h journalHead
		if err := json.Unmarshal(line, &h); err != nil || h.Version <= 0 || strings.ContainsAny(h.ID, "/\x00") {
			return fmt.Errorf("%s: not a journal (fix: remove it to copy everything)", j.path)
		}
		if h.Version != journalVersion {
			return fmt.Errorf("%s: journal version %d is not supported (want %d) (fix: finish with the release that began, or remove it to copy everything)", j.path, h.Version, journalVersion)
		}
		if h.Source != source {
			return fmt.Errorf("%s belongs to an unfinished copy of %s: finish that one (culvert cp %s %s), or remove the file", j.path, h.Source, h.Source, filepath.Dir(j.path))
		}
		j.id = h.ID
	}
	return nil
}

// openJournal opens or makes the journal of a destination and keeps others out.
func openJournal(dst, source string) (*journal, error) {
	j := newJournal(dst)
	f, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	j.file = f
	if err := j.begin(source); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

func (j *journal) begin(source string) error {
	err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another culvert cp is copying to %s", filepath.Dir(j.path))
	}
	// A file system without locks has no second copy either that would know.
	text, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	if err := j.parse(text, source); err != nil {
		return err
	}
	if n := bytes.LastIndexByte(text, '\n') + 1; n < len(text) {
		if err := j.file.Truncate(int64(n)); err != nil {
			return err
		}
	}
	if j.id != "" {
		return nil
	}
	j.id = strings.ToLower(rand.Text()[:8])
	return j.write(journalHead{journalVersion, source, j.id})
}

func (j *journal) write(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = j.file.Write(append(line, '\n'))
	return err
}

// add notes a file that is complete.
func (j *journal) add(f *TreeFile) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(journalLine{Done: f.Path, Size: f.Size, ModTime: f.ModTime})
}

// has reports whether the file was copied, is the same since, and is still there.
func (j *journal) has(f *TreeFile, dst string) bool {
	if j == nil {
		return false
	}
	l, ok := j.done[f.Path]
	if !ok || l.Size != f.Size || !l.ModTime.Equal(f.ModTime) {
		return false
	}
	st, err := os.Lstat(filepath.Join(dst, f.Path))
	return err == nil && st.Mode().IsRegular() && st.Size() == f.Size
}

// temp is the name that a file has while it is not complete, where it needs one.
func (j *journal) temp(path string) string {
	return fmt.Sprintf(".culvert-%s-%016x", j.id, nameHash(path))
}

// close lets go of the journal, and removes it when nothing is left to do.
func (j *journal) close(finished bool) error {
	var err error
	if finished {
		err = os.Remove(j.path)
	}
	return errors.Join(err, j.file.Close())
}
