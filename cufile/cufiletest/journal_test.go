package cufiletest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A journal is where a process that may die notes each case before it begins
// and after it has ended, one line each.
type journal struct{ path string }

type journalLine struct {
	Case     string   `json:"case"`
	Outcomes []string `json:"outcomes"`
}

// note is for cufiletest.Options.
func (j journal) note(name string, outcomes []string) {
	text, err := json.Marshal(journalLine{name, outcomes})
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}

// read returns the cases that have ended, and the one that has not.
func (j journal) read(t *testing.T) (ended map[string][]string, begun string) {
	t.Helper()
	ended = map[string][]string{}
	text, err := os.ReadFile(j.path)
	if errors.Is(err, os.ErrNotExist) {
		return ended, ""
	}
	if err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(bytes.NewReader(text)); sc.Scan(); {
		var l journalLine
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatalf("journal: %v", err)
		}
		if l.Outcomes == nil {
			begun = l.Case
			continue
		}
		ended[l.Case], begun = l.Outcomes, ""
	}
	return ended, begun
}

// engineLine stands for a case in the line that names the engine.
const engineLine = "engine"

// exitTainted is how a child ends when the library has lost track of what is
// registered. A case that is told so at its very first step did not cause it: it
// is played again in a new process.
const exitTainted = 18

// tainted reports whether a case met what another one left behind.
func tainted(outcomes []string) bool {
	return len(outcomes) == 1 && outcomes[0] == "register: error 5028"
}

const (
	maxDeaths = 200
	patience  = 2 * time.Minute // for one case
)

// supervise plays the suite in processes of this test binary until one comes
// through, and returns the outcomes. A case in which a process died has that as
// its outcome.
func supervise(t *testing.T, args ...string) map[string][]string {
	t.Helper()
	j := journal{filepath.Join(t.TempDir(), "journal")}
	if shm, err := os.MkdirTemp("/dev/shm", "cufiletest"); err == nil { // the dead do not clean up
		defer os.RemoveAll(shm)
		args = append(args, "-cufiletest.shm="+shm)
	}
	again := "" // was played in a new process, because of an old one's faults
	for range maxDeaths {
		err := child(t, j, args)
		ended, begun := j.read(t)
		switch exit, _ := errors.AsType[*exec.ExitError](err); {
		case err == nil:
			return ended
		case begun == "":
			t.Fatalf("the child died between cases: %v", err)
		case exit != nil && exit.ExitCode() == exitTainted && begun != again:
			again = begun
			continue
		}
		t.Logf("%s: %v", begun, err)
		j.note(begun, []string{"died: " + err.Error()})
	}
	t.Fatalf("gave up after %d deaths", maxDeaths)
	return nil
}

// child runs one process, and kills it when it makes no progress.
func child(t *testing.T, j journal, args []string) error {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"-test.run=^TestChild$", "-cufiletest.journal=" + j.path}, args...)...)
	cmd.Dir = t.TempDir() // libcufile drops a log into its working directory
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for size := int64(-1); ; {
		select {
		case err := <-done:
			if err != nil {
				t.Logf("the child's last words:\n%s", lastLines(out.String(), 12))
			}
			return err
		case <-time.After(patience):
			now := int64(0)
			if st, err := os.Stat(j.path); err == nil {
				now = st.Size()
			}
			if now == size {
				cmd.Process.Kill()
				<-done
				return errors.New("no progress, killed")
			}
			size = now
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
