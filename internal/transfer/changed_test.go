package transfer

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A source that is written during its copy is an error, and the old destination stays.
func TestSourceChangedDuringTheCopy(t *testing.T) {
	drv, dir := newDriver(t), t.TempDir()
	src, _ := writeFile(t, dir, 1<<20)
	dst := filepath.Join(dir, "dst")
	if err := os.WriteFile(dst, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Unix(1e9, 0)
	change := func(int64, int64) {
		f, err := os.OpenFile(src, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("new"), 0); err != nil {
			t.Error(err)
		}
	}
	copies := map[string]func(o Options) error{
		"file": func(o Options) error {
			_, err := Copy(context.Background(), drv, src, dst, o)
			return err
		},
		"stream": func(o Options) error {
			_, err := CopyOut(context.Background(), drv, src, io.Discard, o)
			return err
		},
	}
	for name, copy := range copies {
		for _, verify := range []bool{false, true} {
			if err := os.Chtimes(src, before, before); err != nil {
				t.Fatal(err)
			}
			err := copy(Options{Verify: verify, Advance: change})
			if err == nil || !strings.Contains(err.Error(), src+" changed during the copy") {
				t.Errorf("%s, verify %v: %v", name, verify, err)
			}
		}
	}
	if got, _ := os.ReadFile(dst); string(got) != "old" {
		t.Errorf("the destination has %d bytes", len(got))
	}
	if err := os.Chtimes(src, before, before); err != nil {
		t.Fatal(err)
	}
	rename := func(int64, int64) { _ = os.Rename(src, src+".1") } // the contents stay
	if _, err := Copy(context.Background(), drv, src, dst, Options{Advance: rename}); err != nil {
		t.Errorf("a file that was renamed: %v", err)
	}
}
