package transfer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

func newDriver(t *testing.T) *cufile.Driver {
	t.Helper()
	cfg, err := soft.ParseConfig(os.Getenv("CULVERT_SOFT"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Zero = false // poison finds what relies on zeros
	cfg.Memory = 64 << 20
	m, err := machine.FromSoft(cfg, "test")
	if err != nil {
		t.Fatal(err)
	}
	drv, err := cufile.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		drv.Close()
		m.Close()
	})
	return drv
}

func writeFile(t *testing.T, dir string, n int) (string, []byte) {
	t.Helper()
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{7}).Read(data)
	name := filepath.Join(dir, "source")
	if err := os.WriteFile(name, data, 0o640); err != nil {
		t.Fatal(err)
	}
	return name, data
}

func TestCopy(t *testing.T) {
	drv := newDriver(t)
	for _, n := range []int{0, 1, 4095, 64 << 10, 1<<20 + 3, 5<<20 + 17} {
		for _, id := range []route.ID{route.None, route.Host, route.Ring} {
			dir := t.TempDir()
			src, data := writeFile(t, dir, n)
			dst := filepath.Join(dir, "dest")
			var last int64
			res, err := Copy(context.Background(), drv, src, dst, Options{
				Route: id, Verify: true, Buffer: 1 << 20, // smaller than the file, so that halves are used again
				Advance: func(done, total int64) {
					if done <= last || total != int64(n) {
						t.Errorf("progress went from %d to %d of %d", last, done, total)
					}
					last = done
				},
			})
			if err != nil || res.Bytes != int64(n) || !res.Verified || last != int64(n) {
				t.Fatalf("%d bytes by %v: %+v, %v", n, id, res, err)
			}
			got, err := os.ReadFile(dst)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes by %v: the copy differs, %v", n, id, err)
			}
			if st, _ := os.Stat(dst); st.Mode().Perm() != 0o640 {
				t.Errorf("the copy has mode %v", st.Mode())
			}
		}
	}
}

func TestVerifyNoticesADifference(t *testing.T) {
	dir := t.TempDir()
	src, data := writeFile(t, dir, 100_000)
	data[77_777] ^= 1
	dst := filepath.Join(dir, "dest")
	if err := os.WriteFile(dst, data, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	res := Result{Source: src, Dest: dst}
	if err := res.verify(context.Background(), in, out); !errors.Is(err, ErrDiffers) || res.Verified {
		t.Errorf("a flipped bit: %v, verified %v", err, res.Verified)
	}
}

// A copy that does not end well leaves the old file and nothing else.
func TestFailedCopyLeavesNothing(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	src, _ := writeFile(t, dir, 8<<20)
	dst := filepath.Join(dir, "dest")
	if err := os.WriteFile(dst, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Copy(ctx, drv, src, dst, Options{Buffer: 1 << 20, Advance: func(done, _ int64) {
		if done >= 2<<20 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled copy: %v", err)
	}
	_, err = Copy(context.Background(), drv, src, dst, Options{Buffer: 1 << 20, Advance: func(done, _ int64) {
		if done == 512<<10 {
			os.Truncate(src, 3<<20)
		}
	}})
	if err == nil {
		t.Error("a file that shrank was copied")
	}
	if got, _ := os.ReadFile(dst); string(got) != "old" {
		t.Errorf("the destination holds %d other bytes", len(got))
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 2 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestCopyRefuses(t *testing.T) {
	drv := newDriver(t)
	dir := t.TempDir()
	src, _ := writeFile(t, dir, 10)
	ctx := context.Background()
	if _, err := Copy(ctx, drv, dir, filepath.Join(dir, "x"), Options{}); err == nil {
		t.Error("a directory was copied")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(ctx, drv, pipe, filepath.Join(dir, "x"), Options{}); err == nil {
		t.Error("a pipe was copied")
	}
	if _, err := Copy(ctx, drv, "/proc/self/status", filepath.Join(dir, "x"), Options{}); err == nil {
		t.Error("a file that hides its size was copied as if it were empty")
	}
	if _, err := Copy(ctx, drv, src, pipe, Options{}); err == nil {
		t.Error("a pipe was replaced")
	}
	if st, err := os.Lstat(pipe); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		t.Errorf("the pipe is no more: %v, %v", st, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Link(src, link); err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{src, link} {
		if _, err := Copy(ctx, drv, src, same, Options{}); err == nil {
			t.Errorf("%s was copied onto itself", same)
		}
	}
	if _, err := Copy(ctx, drv, src, filepath.Join(dir, "none", "x"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that does not exist: %v", err)
	}
	if _, err := Copy(ctx, drv, src, filepath.Join(dir, "x"), Options{GPU: 9}); err == nil {
		t.Error("a GPU that does not exist was used")
	}
	_, err := Copy(ctx, drv, src, filepath.Join(dir, "x"), Options{Route: route.Vendor})
	if _, ok := errors.AsType[*route.RequireError](err); !ok {
		t.Errorf("a route that is not there: %v", err)
	}
}

// A disk that fails while the copy goes on fails the copy: the kernel tells a
// descriptor of such an error once, and the sync at the end would know nothing.
func TestDiskFails(t *testing.T) {
	drv := newDriver(t)
	for _, tt := range []struct {
		name  string
		flags int // of the call that fails; 0 for none
		err   error
		fails bool
	}{
		{"while it is written", unix.SYNC_FILE_RANGE_WRITE, unix.EIO, true},
		{"while it is waited for", unix.SYNC_FILE_RANGE_WAIT_BEFORE, unix.EIO, true},
		{"no room on a thin disk", unix.SYNC_FILE_RANGE_WAIT_BEFORE, unix.ENOSPC, true},
		{"a sandbox without the call", unix.SYNC_FILE_RANGE_WRITE, unix.ENOSYS, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			src, data := writeFile(t, dir, 5<<20+17)
			dst := filepath.Join(dir, "dest")
			calls := 0
			flush := func(_ int, _, _ int64, flags int) error {
				if calls++; calls > 3 && flags&tt.flags != 0 {
					return tt.err
				}
				return nil
			}
			_, err := Copy(context.Background(), drv, src, dst, Options{Buffer: 1 << 20, flush: flush})
			if tt.fails {
				if !errors.Is(err, tt.err) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				if list, _ := os.ReadDir(dir); len(list) != 1 {
					t.Errorf("%d files beside the source", len(list)-1)
				}
				return
			}
			got, rerr := os.ReadFile(dst)
			if err != nil || rerr != nil || !bytes.Equal(got, data) {
				t.Errorf("the copy: %v, %v", err, rerr)
			}
		})
	}
}
