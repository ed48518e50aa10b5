package selftest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/lab/inside"
)

const (
	synced   = "synced"
	unsynced = "unsynced"
	kept     = 1 << 20
)

// TestPowerCut writes a file, waits for fsync and loses power; after the next
// boot the file must be whole. A second file, written without fsync at the
// last moment, must be gone or empty: if it were whole, the cut would not have
// been one.
func TestPowerCut(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_POWERCUT")
	dir := inside.Dir(drive)
	data := fill(make([]byte, kept), 6)
	switch inside.Boot() {
	case 1:
		write(t, filepath.Join(dir, synced), data, true)
		write(t, filepath.Join(dir, unsynced), data, false)
		t.Fatal(inside.PowerCut())
	case 2:
		got, err := os.ReadFile(filepath.Join(dir, synced))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("the file that fsync acknowledged: %d bytes, %v, equal %v", len(got), err, bytes.Equal(got, data))
		}
		if got, err := os.ReadFile(filepath.Join(dir, unsynced)); err == nil && bytes.Equal(got, data) {
			t.Error("a file that nobody synced survived whole: the power was not cut")
		}
	default:
		t.Errorf("boot %d", inside.Boot())
	}
}

func write(t *testing.T, path string, data []byte, sync bool) {
	t.Helper()
	f := open(t, path, os.O_WRONLY|os.O_CREATE)
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	if !sync {
		return
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	d := open(t, filepath.Dir(path), os.O_RDONLY)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
}
