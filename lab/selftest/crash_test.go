package selftest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/lab/crash"
	"github.com/culvert-io/culvert/lab/inside"
)

// TestEveryPowerCut replaces a file in the way that every careful program
// does, several times, and cuts the power at every moment that matters. The
// file is then the version that was acknowledged last, or whole the next one.
func TestEveryPowerCut(t *testing.T) {
	rec, err := crash.Open(drive, "log", inside.Wanted(t, "CULVERT_WANT_CRASH"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	name := filepath.Join(inside.Dir(drive), "f")
	version := func(i int) []byte { return fill(make([]byte, 200<<10+1000*i), uint64(30+i)) }
	report, err := rec.CheckReplacements(6,
		func(i int) error { return replace(name, version(i)) },
		func(dir string, i int) error { return crash.SameFile(filepath.Join(dir, "f"), version(i)) })
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
}

// replace writes a new file beside the old one, makes it durable and renames
// it over the old.
func replace(name string, data []byte) error {
	tmp := name + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	if err := syncPath(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, name); err != nil {
		return err
	}
	return syncPath(filepath.Dir(name))
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
