package selftest

import (
	"bytes"
	"fmt"
	"io/fs"
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
	rec, err := crash.Open(drive, "log", wanted(t, "CULVERT_WANT_CRASH"))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	name := filepath.Join(inside.Dir(drive), "f")
	version := func(i int) []byte { return fill(make([]byte, 200<<10+1000*i), uint64(30+i)) }
	const versions = 6
	var acknowledged []crash.Point
	for i := range versions {
		replace(t, name, version(i))
		now, err := rec.Now()
		if err != nil {
			t.Fatal(err)
		}
		acknowledged = append(acknowledged, now)
	}
	points, err := rec.Points(acknowledged[0], 50, 1)
	if err != nil {
		t.Fatal(err)
	}
	next := 0 // points at which the file was already the next version
	err = rec.Visit(points, func(p crash.Point, dir string) error {
		got, err := os.ReadFile(filepath.Join(dir, "f"))
		if err != nil {
			return err
		}
		latest := 0
		for latest+1 < versions && acknowledged[latest+1] <= p {
			latest++
		}
		switch {
		case bytes.Equal(got, version(latest)):
		case bytes.Equal(got, version(latest+1)):
			next++
		default:
			return fmt.Errorf("%d bytes that are neither version %d nor %d", len(got), latest, latest+1)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("acknowledged after writes %v; %d points, the next version at %d of them", acknowledged, len(points), next)
	if len(points) < 4*versions {
		t.Errorf("%d points: the record is too short to say much", len(points))
	}
}

// replace writes a new file beside the old one, makes it durable and renames
// it over the old.
func replace(t *testing.T, name string, data []byte) {
	t.Helper()
	tmp := name + ".new"
	if err := os.WriteFile(tmp, data, fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	syncPath(t, tmp)
	if err := os.Rename(tmp, name); err != nil {
		t.Fatal(err)
	}
	syncPath(t, filepath.Dir(name))
}

func syncPath(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}
