package transfer

import (
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

// JournalName is the file in a destination that lists the finished files of a copy.
// It is removed when the copy is complete.
const JournalName = ".culvert-cp.journal"

const journalVersion = 1

// A journalHead is the first line of a journal. ID is in the names of temporary
// files, to recognize those of a killed copy.
type journalHead struct {
	Version int    `json:"culvert_cp"`
	Source  string `json:"source"`
	ID      string `json:"id"`
}

// A journalLine is any other line: a complete file, or a directory that was created
// and gets its mode at the end.
type journalLine struct {
	Done    string    `json:"done,omitempty"` // path below the source
	Size    int64     `json:"bytes,omitempty"`
	ModTime time.Time `json:"modified,omitzero"`
	Made    string    `json:"made,omitempty"`
}

// A journal lists the files that are complete and on stable storage.
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

// readJournal reads the journal of a destination; nil if there is none.
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

// parse reads a journal. A crash may leave an incomplete last line.
func (j *journal) parse(text []byte, source string) error {
	head, rest, found := bytes.Cut(text, []byte("\n"))
	if !found {
		return nil // the copy ended before the first line
	}
	var h journalHead
	if err := json.Unmarshal(head, &h); err != nil || h.Version <= 0 || strings.ContainsAny(h.ID, "/\x00") {
		return fmt.Errorf("%s: not a journal (fix: remove it to copy everything)", j.path)
	}
	if h.Version != journalVersion {
		return fmt.Errorf("%s: journal version %d is not supported (want %d) (fix: finish with the release that began, or remove it to copy everything)", j.path, h.Version, journalVersion)
	}
	if h.Source != source {
		return fmt.Errorf("%s belongs to an unfinished copy of %s (fix: finish it with culvert cp %s %s, or remove the file)", j.path, h.Source, h.Source, filepath.Dir(j.path))
	}
	j.id = h.ID
	for line := range bytes.Lines(rest) {
		var l journalLine
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &l) != nil {
			continue
		}
		if l.Done != "" {
			j.done[l.Done] = l
		}
		if l.Made != "" {
			j.made[l.Made] = true
		}
	}
	return nil
}

// openJournal opens or creates the journal of a destination and locks it.
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
	// Other errors: the file system has no locks.
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

// add records a complete file.
func (j *journal) add(f *TreeFile) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(journalLine{Done: f.Path, Size: f.Size, ModTime: f.ModTime})
}

// has reports whether the file was copied, has not changed since, and still exists.
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

// temp returns the name of a file's temporary file.
func (j *journal) temp(path string) string {
	return fmt.Sprintf(".culvert-%s-%016x", j.id, nameHash(path))
}

// close closes the journal, and removes it if the copy is complete.
func (j *journal) close(finished bool) error {
	var err error
	if finished {
		err = os.Remove(j.path)
	}
	return errors.Join(err, j.file.Close())
}
