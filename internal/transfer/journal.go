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

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// JournalName is the file in a destination that lists the finished files of a copy.
// It is removed when the copy is complete.
const JournalName = ".culvert-cp.journal"

const journalVersion = 1

// journalStart begins every journal, and idLetters may be in its ID.
const (
	journalStart = `{"culvert_cp":`
	idLetters    = "abcdefghijklmnopqrstuvwxyz0123456789"
)

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
	Done      string    `json:"done,omitempty"` // path below the source
	Size      int64     `json:"bytes,omitempty"`
	ModTime   time.Time `json:"modified,omitzero"`
	Source    fileID    `json:"source_file,omitzero"`
	Dest      fileID    `json:"destination_file,omitzero"`
	Preserved bool      `json:"preserved,omitempty"`
	Made      string    `json:"made,omitempty"`
}

// A fileID changes with every write to a file, and when another takes its place. The
// change time cannot be set by programs.
type fileID struct {
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"bytes"`
	Modified int64  `json:"modified_ns"`
	Changed  int64  `json:"changed_ns"`
}

func idOf(st *unix.Stat_t) fileID {
	return fileID{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// A journal lists the files that are complete and on stable storage.
type journal struct {
	dir  *atomicfile.Dir
	path string
	id   string
	done map[string]journalLine
	made map[string]bool

	mu   sync.Mutex
	file *os.File // locked while the copy runs
	text bytes.Buffer
}

func newJournal(dir *atomicfile.Dir) *journal {
	return &journal{dir: dir, path: dir.Path(JournalName), done: map[string]journalLine{}, made: map[string]bool{}}
}

// errForeign means that a journal was not written by a copy of this user. Other users
// may write to the destination, and could list files of their own as finished, or
// have a link in its place that leads to a file of this user.
var errForeign = errors.New("not a journal of this user")

// openOwn opens the journal if there is one. It waits for nothing and changes nothing.
func (j *journal) openOwn(flags int) error {
	st, err := j.dir.Stat(JournalName)
	if err == nil && !own(st) {
		err = errForeign
	}
	if err != nil {
		return err
	}
	f, err := j.dir.OpenFile(JournalName, flags, 0)
	if err != nil {
		return err
	}
	if err = unix.Fstat(int(f.Fd()), st); err == nil && !own(st) {
		err = errForeign
	}
	if err != nil {
		f.Close()
		return err
	}
	j.file = f
	return nil
}

// own reports whether only this user can have written the file, under this name.
func own(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && int(st.Uid) == os.Geteuid() && st.Nlink == 1 && st.Mode&0o022 == 0
}

// maxJournal limits what is read: 4 million files have about 1 GiB.
const maxJournal = 1 << 30

// read reads and parses the open journal.
func (j *journal) read(source string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(j.file, maxJournal+1))
	if err == nil && len(text) > maxJournal {
		err = fmt.Errorf("%s is larger than %d bytes (fix: remove it to copy everything)", j.path, maxJournal)
	}
	if err != nil {
		return nil, err
	}
	return text, j.parse(text, source)
}

// readJournal reads the journal of a destination; nil if there is none.
func readJournal(dir *atomicfile.Dir, source string) (*journal, error) {
	j := newJournal(dir)
	err := j.openOwn(os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, errForeign) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer j.file.Close()
	if _, err := j.read(source); err != nil {
		return nil, err
	}
	return j, nil
}

// parse reads a journal. A crash may leave an incomplete last line.
func (j *journal) parse(text []byte, source string) error {
	head, rest, found := bytes.Cut(text, []byte("\n"))
	if !found && (strings.HasPrefix(journalStart, string(head)) || strings.HasPrefix(string(head), journalStart)) {
		return nil // the copy ended before the first line
	}
	var h journalHead
	if err := json.Unmarshal(head, &h); err != nil || h.Version <= 0 || strings.Trim(h.ID, idLetters) != "" {
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

// openJournal opens or creates the journal of a destination and locks it. One that
// this user did not write is replaced.
func openJournal(dir *atomicfile.Dir, source string) (*journal, error) {
	j := newJournal(dir)
	err := j.openOwn(os.O_RDWR | os.O_APPEND)
	if errors.Is(err, errForeign) {
		if err := dir.Remove(JournalName); err != nil {
			return nil, fmt.Errorf("%w, and is not a journal of this user (fix: remove it)", err)
		}
		err = os.ErrNotExist
	}
	if errors.Is(err, os.ErrNotExist) {
		j.file, err = dir.OpenFile(JournalName, os.O_RDWR|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	}
	if errors.Is(err, os.ErrExist) {
		err = j.busy()
	}
	if err != nil {
		return nil, err
	}
	if err := j.begin(source); err != nil {
		return nil, errors.Join(err, j.file.Close())
	}
	return j, nil
}

func (j *journal) busy() error {
	return fmt.Errorf("another culvert cp is copying to %s", filepath.Dir(j.path))
}

// current reports whether the open journal still has its name: a copy that ends
// removes it.
func (j *journal) current() bool {
	var here unix.Stat_t
	there, err := j.dir.Stat(JournalName)
	return err == nil && unix.Fstat(int(j.file.Fd()), &here) == nil && sameFile(&here, there)
}

func (j *journal) begin(source string) error {
	err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || !j.current() {
		return j.busy()
	}
	// Other errors: the file system has no locks.
	text, err := j.read(source)
	if err != nil {
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

// write appends lines, all at once.
func (j *journal) write(lines ...any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
	enc := json.NewEncoder(&j.text)
	for _, v := range lines {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	_, err := j.file.Write(j.text.Bytes())
	return err
}

// add records complete files, as they were read and as they were written.
func (j *journal) add(files []*waiting) error {
	lines := make([]any, len(files))
	for i, w := range files {
		f := w.file
		lines[i] = journalLine{Done: f.Path, Size: f.Size, ModTime: f.ModTime, Source: idOf(w.source), Dest: idOf(&w.dest), Preserved: w.opts.Preserve}
	}
	return j.write(lines...)
}

// lineRoom is more than a line takes, as a rule.
const lineRoom = 512

// reserve takes room for so many lines more, as far as the file system can: files that fill
// it would leave none for what says that they are complete.
func (j *journal) reserve(lines int) {
	if st, err := j.file.Stat(); err == nil && lines > 0 {
		_ = unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, st.Size(), int64(lines)*lineRoom)
	}
}

// has reports whether the file was copied, and neither it nor the copy has changed
// since.
func (j *journal) has(path string, source, dest *unix.Stat_t, preserved bool) bool {
	if j == nil {
		return false
	}
	l, ok := j.done[path]
	return ok && dest.Mode&unix.S_IFMT == unix.S_IFREG && l.Source == idOf(source) && l.Dest == idOf(dest) && (l.Preserved || !preserved)
}

// temp returns the name of a file's temporary file. A link has no lock that would
// keep other processes from taking it for a leftover, so its name ends otherwise.
func (j *journal) temp(path string) string { return j.linkTemp(path) + atomicfile.Suffix }

func (j *journal) linkTemp(path string) string {
	return fmt.Sprintf("%s%016x", j.mark(), nameHash(path))
}

// mark begins the names of the temporary files.
func (j *journal) mark() string { return ".culvert-" + j.id + "-" }

// close closes the journal, and removes it if the copy is complete.
func (j *journal) close(finished bool) error {
	var err error
	if finished && j.current() {
		err = j.dir.Remove(JournalName)
	} else if st, serr := j.file.Stat(); serr == nil {
		_ = j.file.Truncate(st.Size()) // gives back what reserve took
	}
	return errors.Join(err, j.file.Close())
}
