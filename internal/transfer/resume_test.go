package transfer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/route"
)

// A stopped is the copy of a file that was stopped in the middle.
type stopped struct {
	t              *testing.T
	src, dst, part string
	data           []byte
	opts           Options
}

const stoppedSize = 6<<20 + 17

// stopCopy copies a file until a part of it is written.
func stopCopy(t *testing.T) *stopped {
	t.Helper()
	dir := t.TempDir()
	src, data := writeFile(t, dir, stoppedSize)
	s := &stopped{t: t, src: src, dst: filepath.Join(dir, "dst"), part: filepath.Join(dir, atomicfile.PartName("dst")), data: data}
	s.opts = Options{Buffer: 1 << 20, resumeFrom: 1 << 20}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := s.opts
	o.Advance = func(done, _ int64) {
		if done >= 3<<20 {
			cancel()
		}
	}
	_, err := Copy(ctx, newDriver(t), src, s.dst, o)
	kept, ok := errors.AsType[*KeptError](err)
	if !ok || !errors.Is(err, context.Canceled) || kept.Path != s.part || kept.Kept < 3<<20 || kept.Of != stoppedSize {
		t.Fatalf("a stopped copy: %+v, %v", kept, err)
	}
	if st, err := os.Stat(s.part); err != nil || st.Size() != kept.Kept || st.Mode().Perm() != 0o600 {
		t.Fatalf("the part: %v, %v", st, err)
	}
	return s
}

// again copies the file, and expects that so many bytes were there.
func (s *stopped) again(least, most int64) Result {
	s.t.Helper()
	res, err := Copy(context.Background(), newDriver(s.t), s.src, s.dst, s.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.Resumed < least || res.Resumed > most || res.Resumed+res.Bytes != int64(len(s.data)) || res.Holes != 0 {
		s.t.Errorf("resumed after %d bytes, want %d to %d; %d were copied", res.Resumed, least, most, res.Bytes)
	}
	if got, err := os.ReadFile(s.dst); err != nil || !bytes.Equal(got, s.data) {
		s.t.Errorf("the copy differs: %v", err)
	}
	if st, err := os.Stat(s.dst); err != nil || st.Mode().Perm() != 0o640 {
		s.t.Errorf("the copy: %v, %v", st, err)
	}
	return res
}

func (s *stopped) gone() {
	s.t.Helper()
	if _, err := os.Lstat(s.part); !errors.Is(err, os.ErrNotExist) {
		s.t.Errorf("the part is still there: %v", err)
	}
}

func TestResumesInTheMiddle(t *testing.T) {
	s := stopCopy(t)
	s.again(3<<20, stoppedSize-1)
	s.gone()
}

// What is there is compared: it may have been lost, or be of another file.
func TestResumeComparesWhatIsThere(t *testing.T) {
	s := stopCopy(t)
	f, err := os.OpenFile(s.part, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{s.data[1<<20+5] ^ 1}, 1<<20+5)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s.again(1<<20, 1<<20)
	s.gone()
}

func TestResumeOfAnotherSource(t *testing.T) {
	s := stopCopy(t)
	s.data = append([]byte("another file "), s.data[:3<<20]...)
	if err := os.WriteFile(s.src, s.data, 0o640); err != nil {
		t.Fatal(err)
	}
	s.again(0, 0)
	s.gone()
}

// A required route is required for every byte.
func TestResumeUnderARequiredRoute(t *testing.T) {
	for _, o := range []Options{{Route: route.Ring}, {Require: route.Host}} {
		s := stopCopy(t)
		s.opts.Route, s.opts.Require = o.Route, o.Require
		s.again(0, 0)
		s.gone()
	}
}

// The file that is replaced has the new contents at once, and before that the old ones.
func TestResumeReplaces(t *testing.T) {
	s := stopCopy(t)
	if err := os.WriteFile(s.dst, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	s.again(3<<20, stoppedSize-1)
	s.gone()
}

// An error that is not a stop leaves nothing.
func TestFailedCopyKeepsNoPart(t *testing.T) {
	s := stopCopy(t)
	o := s.opts
	o.flush = func(int, int64, int64, int) error { return unix.EIO }
	if _, err := Copy(context.Background(), newDriver(t), s.src, s.dst, o); !errors.Is(err, unix.EIO) {
		t.Errorf("a disk that fails: %v", err)
	}
	s.gone()
}

// A copy may have been killed after it had set the attributes.
func TestResumeDropsOldAttributes(t *testing.T) {
	s := stopCopy(t)
	if err := unix.Setxattr(s.part, "user.culvert.test", []byte("old"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if err := os.Chmod(s.part, 0o644); err != nil {
		t.Fatal(err)
	}
	s.again(3<<20, stoppedSize-1)
	if n, err := unix.Getxattr(s.dst, "user.culvert.test", nil); err == nil {
		t.Errorf("an attribute of an earlier copy has %d bytes", n)
	}
}

// What is at the name of the part and not this copy's alone is not written to.
func TestForeignPart(t *testing.T) {
	precious := []byte("precious")
	for name, plant := range map[string]func(s *stopped, other string) error{
		"symlink":   func(s *stopped, other string) error { return os.Symlink(other, s.part) },
		"link":      func(s *stopped, other string) error { return os.Link(other, s.part) },
		"fifo":      func(s *stopped, _ string) error { return unix.Mkfifo(s.part, 0o600) },
		"read only": func(s *stopped, _ string) error { return os.WriteFile(s.part, s.data[:3<<20], 0o400) },
		"dir":       func(s *stopped, _ string) error { return os.Mkdir(s.part, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			s := stopCopy(t)
			other := filepath.Join(filepath.Dir(s.dst), "other")
			if err := errors.Join(os.WriteFile(other, precious, 0o600), os.Remove(s.part), plant(s, other)); err != nil {
				t.Fatal(err)
			}
			s.again(0, 0)
			if got, err := os.ReadFile(other); err != nil || !bytes.Equal(got, precious) {
				t.Errorf("another file was written to: %q, %v", got, err)
			}
		})
	}
	t.Run("locked", func(t *testing.T) {
		s := stopCopy(t)
		f, err := os.Open(s.part)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		s.again(0, 0)
		if _, err := os.Stat(s.part); err != nil {
			t.Errorf("the file that another copy writes: %v", err)
		}
	})
}

// A directory copy resumes in the middle of its files, too, and does not copy parts.
func TestTreeResumesInTheMiddle(t *testing.T) {
	drv, dir := newDriver(t), t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	_, data := writeFile(t, src, stoppedSize)
	if err := os.WriteFile(filepath.Join(src, atomicfile.PartName("x")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, advance func(int64)) (*TreeResult, error) {
		tree, err := PlanTree(ctx, src, dst, PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return tree.Copy(ctx, drv, TreeOptions{Options: Options{Buffer: 1 << 20, resumeFrom: 1 << 20}, Watch: watchFunc(advance)})
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := run(ctx, func(done int64) {
		if done >= 3<<20 {
			cancel()
		}
	})
	if _, ok := errors.AsType[*StoppedError](err); !ok {
		t.Fatal(err)
	}
	res, err := run(context.Background(), func(int64) {})
	if err != nil || res.Resumed < 3<<20 || res.Resumed+res.Bytes != stoppedSize {
		t.Errorf("%+v, %v", res, err)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "source")); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy differs: %v", err)
	}
	if list, err := os.ReadDir(dst); len(list) != 1 {
		t.Errorf("the destination has %v, %v", list, err)
	}
}

type watchFunc func(done int64)

func (w watchFunc) Began(*TreeFile)                  {}
func (w watchFunc) Resumed(*TreeFile, int64)         {}
func (w watchFunc) Advanced(_ *TreeFile, done int64) { w(done) }
func (w watchFunc) Filled(*TreeFile)                 {}
func (w watchFunc) Ended(*TreeFile, *Result, error)  {}
