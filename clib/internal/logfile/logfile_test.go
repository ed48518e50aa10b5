package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestLevels(t *testing.T) {
	for l := Trace; l <= Fatal; l++ {
		if got, ok := ParseLevel(strings.ToLower(l.String())); got != l || !ok {
			t.Errorf("%v: %v, %t", l, got, ok)
		}
	}
	if l, ok := ParseLevel("loud"); ok || l != Error {
		t.Errorf("loud: %v, %t", l, ok)
	}
}

func TestOnlyTheLevelAndAbove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cufile.log")
	var l File
	l.Write(Fatal, "nowhere", "dropped")
	if err := l.Configure(Config{Path: path, Level: Info}); err != nil {
		t.Fatal(err)
	}
	l.Write(Debug, "cuFileRead", "dropped")
	l.Write(Info, "cuFileDriverOpen", "%d settings\nof two lines", 2)
	l.Write(Error, "cuFileRead", "%v", errors.New("no"))
	if err := l.Configure(Config{}); err != nil {
		t.Fatal(err)
	}
	l.Write(Fatal, "cuFileRead", "dropped")
	want := regexp.MustCompile(fmt.Sprintf(`^\d\d-\d\d-\d{4} \d\d:\d\d:\d\d:\d{3} \[pid=%[1]d\] INFO   cuFileDriverOpen: 2 settings
	of two lines
\d\d-\d\d-\d{4} \d\d:\d\d:\d\d:\d{3} \[pid=%[1]d\] ERROR  cuFileRead: no
$`, os.Getpid()))
	if b, err := os.ReadFile(path); err != nil || !want.Match(b) {
		t.Errorf("%q, %v", b, err)
	}
}

func TestNoFile(t *testing.T) {
	var l File
	if err := l.Configure(Config{Path: filepath.Join(t.TempDir(), "no", "log")}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if l.Logs(Fatal) {
		t.Error("it logs without a file")
	}
}

// The file never exceeds its limit by more than a line, with many writers.
func TestLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const limit = 4 << 10
	var l File
	if err := l.Configure(Config{Path: path, Limit: limit}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				l.Write(Error, "cuFileRead", "%s", strings.Repeat("x", 50))
			}
		})
	}
	wg.Wait()
	if st, err := os.Stat(path); err != nil || st.Size() > limit || st.Size() == 0 {
		t.Errorf("%v, %v", st, err)
	}
}
