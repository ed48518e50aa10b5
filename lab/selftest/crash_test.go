package selftest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

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

// TestUnflushedWriteIsLost shows that the cuts reach into the drive's cache: a
// block that is overwritten in place past the page cache is all on the drive
// when the write returns, but only a flush keeps it there.
func TestUnflushedWriteIsLost(t *testing.T) {
	rec, err := crash.Open(drive, "log", inside.Wanted(t, "CULVERT_WANT_CRASH"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	for name, sync := range map[string]func(*os.File) error{
		"flushed":     (*os.File).Sync,
		"not flushed": func(*os.File) error { return nil },
	} {
		f := open(t, filepath.Join(inside.Dir(drive), "in place "+name), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
		version := func(i int) []byte { return fill(page(t, 4096), uint64(70+i)) }
		if n, err := pwrite(f, version(0), 0); n != 4096 || err != nil {
			t.Fatal(n, err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		report, err := rec.CheckReplacements(4, func(i int) error {
			if n, err := pwrite(f, version(i), 0); n != 4096 || err != nil {
				return fmt.Errorf("write: %d, %w", n, err)
			}
			return sync(f)
		}, func(dir string, i int) error {
			return crash.SameFile(filepath.Join(dir, "in place "+name), version(i))
		})
		t.Logf("%s: %s: %v", name, report, err)
		if (err == nil) != (name == "flushed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
