package selftest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/lab/inside"
)

// reading reads one block over and over until something else than the whole
// block comes back, and reports that. started is closed after the first block.
type outcome struct {
	n     int
	err   error
	reads int
}

func reading(t *testing.T, f *os.File) (started chan struct{}, ended chan outcome) {
	b := page(t, 4096)
	started, ended = make(chan struct{}), make(chan outcome, 1)
	go func() {
		for reads := 0; ; reads++ {
			n, err := pread(f, b, 0)
			if n != len(b) || err != nil {
				ended <- outcome{n, err, reads}
				return
			}
			if reads == 0 {
				close(started)
			}
		}
	}()
	return started, ended
}

// TestUnplugRaw shows why a short read must be noticed: an open descriptor of
// a raw drive that was pulled out returns 0 bytes and no error.
func TestUnplugRaw(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_UNPLUG")
	disk, err := inside.Disk("hotraw")
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, disk, os.O_RDONLY|unix.O_DIRECT)
	started, ended := reading(t, f)
	<-started
	if err := inside.Unplug("hotraw"); err != nil {
		t.Fatal(err)
	}
	o := <-ended
	t.Logf("the read under way ended with %d, %v after %d reads", o.n, o.err, o.reads)
	if o.err != nil && !errors.Is(o.err, unix.EIO) && !errors.Is(o.err, unix.ENXIO) {
		t.Errorf("read under way: %d, %v", o.n, o.err)
	}
	if n, err := pread(f, page(t, 4096), 0); n != 0 || err != nil {
		t.Errorf("read of the open descriptor afterwards: %d, %v, want 0 and no error", n, err)
	}
	if _, err := inside.Disk("hotraw"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the drive is still there: %v", err)
	}
}

// TestUnplugFile pulls the drive out from under a file system.
func TestUnplugFile(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_UNPLUG")
	f := open(t, filepath.Join(inside.Dir("hotfs"), "f"), os.O_RDWR|os.O_CREATE|unix.O_DIRECT)
	if n, err := pwrite(f, fill(page(t, 1<<20), 5), 0); n != 1<<20 || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	started, ended := reading(t, f)
	<-started
	if err := inside.Unplug("hotfs"); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; !errors.Is(o.err, unix.EIO) {
		t.Errorf("read under way: %d, %v, want EIO", o.n, o.err)
	}
	if n, err := pwrite(f, page(t, 4096), 0); err == nil {
		t.Errorf("write to a drive that is gone: %d bytes and no error", n)
	}
	if err := f.Sync(); err == nil {
		t.Error("fsync on a drive that is gone: no error")
	}
}
