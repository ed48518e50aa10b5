package atomicfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func lockName(dir string) string {
	return filepath.Join(dir, ".lock-"+strconv.Itoa(os.Geteuid())+Suffix)
}

func TestLockDirExcludes(t *testing.T) {
	dir := t.TempDir()
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				Sweep(dir) // never removes a lock that is held
				unlock, err := LockDir(t.Context(), dir)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				time.Sleep(10 * time.Microsecond)
				inside.Add(-1)
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A wait for the lock ends with its context, and by itself.
func TestLockDirEnds(t *testing.T) {
	dir := t.TempDir()
	unlock, err := LockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(stopped) })
	if _, err := LockDir(ctx, dir); !errors.Is(err, stopped) {
		t.Errorf("stopped: %v", err)
	}
	if _, err := lockDir(t.Context(), dir, 20*time.Millisecond); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("waited: %v", err)
	}
	if _, err := LockDir(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A file that other users can open is no lock: they could hold it.
func TestLockDirTrustsNoOthers(t *testing.T) {
	dir := t.TempDir()
	name := lockName(dir)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockDir(t.Context(), dir, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the lock is %v, %v", st, err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(file, []byte("x"), 0o600), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	f, err := OpenRegular(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	for _, path := range []string{fifo, dir, "/dev/null"} {
		if _, err := OpenRegular(path); !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := OpenRegular(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "a", "b", "c")
	for range 2 {
		if err := MkdirAll(deep+"/", 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(deep); err != nil || !st.IsDir() {
		t.Errorf("%v, %v", st, err)
	}
	file := filepath.Join(deep, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "d")} {
		if err := MkdirAll(path, 0o700); !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
