package transfer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const manySmall = 40

// shrubs makes a source directory of small files, in two directories.
func shrubs(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	for i := range manySmall {
		path := filepath.Join(src, fmt.Sprint(i%2), fmt.Sprintf("%02d", i))
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(strings.Repeat(fmt.Sprint(i), i*50)), 0o640))
		if err != nil {
			t.Fatal(err)
		}
	}
	return src
}

// copied checks what a copy of shrubs left: all but some files, and nothing else, which
// the next copy completes.
func copied(t *testing.T, src, dst string, missing ...string) {
	t.Helper()
	want := contents(t, src)
	for _, name := range missing {
		delete(want, name)
	}
	got := contents(t, dst)
	delete(got, JournalName)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the copy differs (-source +copy):\n%s", d)
	}
	res, err := plan(t, src, dst).Copy(t.Context(), newDriver(t), TreeOptions{Options: keep})
	if err != nil || len(missing) > 0 && (res.Done != manySmall-len(missing) || res.Files != len(missing)) {
		t.Errorf("going on: %+v, %v", res, err)
	}
	sameTree(t, src, dst)
}

func TestGroupFull(t *testing.T) {
	for _, c := range []struct {
		files int
		bytes int64
		want  bool
	}{{1, 0, false}, {99, groupBytes - 1, false}, {100, 0, true}, {1, groupBytes, true}} {
		if got := groupFull(c.files, 100, c.bytes); got != c.want {
			t.Errorf("%d files, %d bytes: %v", c.files, c.bytes, got)
		}
	}
	for n, want := range map[uint64]int{0: 1, 20: 1, 1024: 64, 1 << 20: groupFiles} {
		if got := groupLimit(n); got != want {
			t.Errorf("%d descriptors: %d files, want %d", n, got, want)
		}
	}
}

// A group is published when it is full, when its first file has waited, and at the end.
func TestPublisherGroups(t *testing.T) {
	p, age := newPublisher(3), make(chan time.Time)
	p.age = func() <-chan time.Time { return age }
	got := make(chan int, 4)
	go p.run(func(g []*waiting) { got <- len(g) })
	file := func(size int64) { p.files <- &waiting{fileCopy: &fileCopy{source: &unix.Stat_t{Size: size}}} }
	for range 3 {
		file(1)
	}
	file(groupBytes)
	sizes := []int{<-got, <-got}
	file(1)
	age <- time.Time{}
	sizes = append(sizes, <-got)
	file(1)
	file(1)
	p.stop()
	if d := cmp.Diff([]int{3, 1, 1, 2}, append(sizes, <-got)); d != "" {
		t.Error("sizes of groups (-want +got):\n", d)
	}
}

func TestSyncTogether(t *testing.T) {
	quiet := syncFacts{fs: unix.EXT4_SUPER_MAGIC, reports: true, files: 100, dirty: 1 << 20}
	for name, c := range map[string]struct {
		change func(*syncFacts)
		want   bool
	}{
		"quiet":          {func(*syncFacts) {}, true},
		"xfs":            {func(f *syncFacts) { f.fs = unix.XFS_SUPER_MAGIC }, true},
		"nfs":            {func(f *syncFacts) { f.fs = unix.NFS_SUPER_MAGIC }, false},
		"fuse":           {func(f *syncFacts) { f.fs = unix.FUSE_SUPER_MAGIC }, false},
		"Linux 5.7":      {func(f *syncFacts) { f.reports = false }, false},
		"few files":      {func(f *syncFacts) { f.files = syncedAlone }, false},
		"others write":   {func(f *syncFacts) { f.dirty = maxDirty + 1 }, false},
		"others unknown": {func(f *syncFacts) { f.dirty = -1 }, false},
	} {
		f := quiet
		c.change(&f)
		if got := f.together(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for release, want := range map[string]bool{"4.19.0-26-amd64": false, "5.7.19": false, "5.8.0": true, "6.1": true, "10.2": true, "x": false} {
		if got := reportsErrors(release); got != want {
			t.Errorf("Linux %s: %v", release, got)
		}
	}
}

// If syncfs fails, each file is synced by itself: the error may be about another file.
func TestSyncfsFails(t *testing.T) {
	src, dst := shrubs(t), filepath.Join(t.TempDir(), "dst")
	var all, each atomic.Int64
	o := Options{Preserve: true, syncfs: func(int) error { all.Add(1); return unix.EIO }, flush: func(fd int, off, n int64, flags int) error {
		each.Add(1)
		return unix.SyncFileRange(fd, off, n, flags)
	}}
	if _, err := plan(t, src, dst).Copy(t.Context(), newDriver(t), TreeOptions{Options: o}); err != nil {
		t.Fatal(err)
	}
	if each.Load() != manySmall {
		t.Errorf("%d files were synced by themselves, after %d tries to sync them together", each.Load(), all.Load())
	}
	copied(t, src, dst)
}

// A file whose data does not reach the disk is reported, and the others of its group are
// published.
func TestOneFileOfAGroupFails(t *testing.T) {
	src, dst := shrubs(t), filepath.Join(t.TempDir(), "dst")
	var n atomic.Int64
	o := Options{Preserve: true, apart: true, flush: func(int, int64, int64, int) error {
		if n.Add(1) == 6 {
			return unix.EIO
		}
		return nil
	}}
	_, err := plan(t, src, dst).Copy(t.Context(), newDriver(t), TreeOptions{Options: o, Jobs: 1})
	stopped, ok := errors.AsType[*StoppedError](err)
	if !ok || stopped.Files != manySmall-1 || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "0/10") {
		t.Fatal(err)
	}
	copied(t, src, dst, "0/10")
}

// beforeOpening calls a function before a file is opened.
type beforeOpening struct {
	path string
	do   func()
}

func (b beforeOpening) Began(f *TreeFile) {
	if f.Path == b.path {
		b.do()
	}
}
func (beforeOpening) Resumed(*TreeFile, int64)        {}
func (beforeOpening) Advanced(*TreeFile, int64)       {}
func (beforeOpening) Filled(*TreeFile)                {}
func (beforeOpening) Ended(*TreeFile, *Result, error) {}

// A file of a pack that changes while the pack is copied, or cannot get its name, is
// reported, and the others are published.
func TestOneFileOfAPackFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(src, dst string) error
		want   string
	}{
		"truncated": {func(src, _ string) error { return os.Truncate(src, 10) }, "was truncated to 10 bytes"},
		"touched":   {func(src, _ string) error { return os.Chtimes(src, time.Time{}, time.Unix(1, 0)) }, "changed during the copy"},
		"directory": {func(_, dst string) error { return os.Mkdir(dst, 0o700) }, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := shrubs(t), filepath.Join(t.TempDir(), "dst")
			// Later files of the pack are opened after 1/03.
			watch := beforeOpening{"1/39", sync.OnceFunc(func() {
				if err := c.change(filepath.Join(src, "1/03"), filepath.Join(dst, "1/03")); err != nil {
					t.Error(err)
				}
			})}
			_, err := plan(t, src, dst).Copy(t.Context(), newDriver(t), TreeOptions{Options: keep, Jobs: 1, Watch: watch})
			stopped, ok := errors.AsType[*StoppedError](err)
			if !ok || stopped.Files != manySmall-1 || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "1/03") {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dst, "1/03")); err != nil {
				t.Fatal(err)
			}
			copied(t, src, dst, "1/03")
		})
	}
}

// Ctrl-C at any moment of a group leaves whole files and no others.
func TestStoppedGroup(t *testing.T) {
	src := shrubs(t)
	for stop := int64(1); ; stop += 7 {
		dst := filepath.Join(t.TempDir(), "dst")
		ctx, cancel := context.WithCancel(t.Context())
		var steps atomic.Int64
		_, err := plan(t, src, dst).Copy(ctx, newDriver(t), TreeOptions{Options: Options{Preserve: true, apart: stop%2 == 0, named: stop%3 == 0, step: func() {
			if steps.Add(1) == stop {
				cancel()
			}
		}}})
		cancel()
		if err == nil {
			copied(t, src, dst)
			if stop < manySmall {
				t.Errorf("only %d steps", stop)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		onlyWhole(t, src, dst, nil)
		for name := range contents(t, dst) {
			if base := filepath.Base(name); strings.HasPrefix(base, ".") && base != JournalName && base != "." {
				t.Errorf("stopped at step %d: %s was left", stop, name)
			}
		}
	}
}

// Small files that follow each other share packs; the limits hold.
func TestUnits(t *testing.T) {
	var files []TreeFile
	for _, size := range []int64{10, 20, 70, 500, 30, 0, 0, 0, 0} {
		files = append(files, TreeFile{Size: size})
	}
	var got [][]int64
	for _, u := range units(files, func(f *TreeFile) bool { return f.Size < 100 }, 3, 90) {
		var sizes []int64
		for _, f := range u {
			sizes = append(sizes, f.Size)
		}
		got = append(got, sizes)
	}
	if d := cmp.Diff([][]int64{{10, 20}, {70}, {500}, {30, 0, 0}, {0, 0}}, got); d != "" {
		t.Error("(-want +got)\n", d)
	}
}

// The receipts of packs count every byte once, and say why files were not moved directly.
func TestPackReceipts(t *testing.T) {
	src, dst := shrubs(t), filepath.Join(t.TempDir(), "dst")
	_, _, want, _ := plan(t, src, dst).Totals()
	res, err := plan(t, src, dst).Copy(t.Context(), newDriver(t), TreeOptions{Options: Options{Preserve: true, Verify: true}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Files != manySmall || res.Bytes != want || res.Read.Bytes != want || res.Write.Bytes != want || res.Read.Host.Bytes < want {
		t.Errorf("result %+v, want %d bytes", res, want)
	}
	for _, d := range res.Read.Declined.List() {
		if strings.Contains(d.Evidence, "not a local file") {
			t.Error(d)
		}
	}
	copied(t, src, dst)
}

// Room for descriptors is made at once, and takes none.
func TestReserveDescriptors(t *testing.T) {
	status := func() (room, open int) {
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\nFDSize:")
		if _, err := fmt.Sscan(rest, &room); err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return room, len(list)
	}
	room, open := status()
	reserveDescriptors(room + 1)
	more, still := status()
	if more <= room || still != open {
		t.Errorf("room for %d descriptors, was %d; %d are open, were %d", more, room, still, open)
	}
}
