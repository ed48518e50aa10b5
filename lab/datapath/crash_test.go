package datapath

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/transfer"
	"github.com/culvert-io/culvert/lab/crash"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/tensor"
)

func record(t *testing.T) *crash.Recording {
	t.Helper()
	rec, err := crash.Open("nv0", "log", inside.Wanted(t, "CULVERT_WANT_CRASH"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	return rec
}

// TestCopyAtEveryPowerCut copies over a file again and again: at every point
// it is one version or the next.
func TestCopyAtEveryPowerCut(t *testing.T) {
	rec := record(t)
	w := newFixture(t)
	dst := filepath.Join(inside.Dir("nv0"), "copied")
	// The small ones are on their way to the drive when the copy ends.
	version := func(i int) []byte { return noise([]int{700_000, 5000, 1}[i%3]+i, uint64(20+i)) }
	report, err := rec.CheckReplacements(9, func(i int) error {
		src := filepath.Join("/tmp", fmt.Sprint("src", i))
		defer os.Remove(src)
		if err := os.WriteFile(src, version(i), 0o600); err != nil {
			return err
		}
		_, err := transfer.Copy(t.Context(), w.drv, src, dst, transfer.Options{Buffer: 1 << 20})
		return err
	}, func(dir string, i int) error {
		return crash.SameFile(filepath.Join(dir, "copied"), version(i))
	})
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
}

// TestTreeAtEveryPowerCut copies over a directory of small files again and again, which are
// synced and named in groups: at every point each of them is one version or the next, and
// those in the journal are on the drive.
func TestTreeAtEveryPowerCut(t *testing.T) {
	const files = 12
	rec := record(t)
	w := newFixture(t)
	dst := filepath.Join(inside.Dir("nv0"), "tree")
	version := func(i, file int) []byte { return noise(1+(i*700+file*301)%9000, uint64(100*i+file)) }
	name := func(file int) string { return filepath.Join(fmt.Sprint(file%3), fmt.Sprint(file)) }
	report, err := rec.CheckReplacements(3, func(i int) error {
		src := filepath.Join("/tmp", fmt.Sprint("tree", i))
		defer os.RemoveAll(src)
		for file := range files {
			path := filepath.Join(src, name(file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, version(i, file), 0o600)); err != nil {
				return err
			}
		}
		tree, err := transfer.PlanTree(t.Context(), src, dst, transfer.PlanOptions{})
		if err == nil {
			_, err = tree.Copy(t.Context(), w.drv, transfer.TreeOptions{})
		}
		return err
	}, func(dir string, i int) error {
		for file := range files {
			path := filepath.Join(dir, "tree", name(file))
			if err := crash.SameFile(path, version(i, file)); err != nil && crash.SameFile(path, version(i+1, file)) != nil {
				return err
			}
		}
		return journalled(filepath.Join(dir, "tree"))
	})
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
}

// journalled returns an error if the journal of a copy lists a file that is not there.
func journalled(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, transfer.JournalName))
	if err != nil {
		return nil // the copy is complete, or has not begun
	}
	for line := range bytes.Lines(text) {
		var l struct {
			Done string
			Dest struct{ Inode uint64 } `json:"destination_file"`
		}
		if json.Unmarshal(line, &l) != nil || l.Done == "" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, l.Done), &st); err != nil || st.Ino != l.Dest.Inode {
			return fmt.Errorf("the journal lists %s with inode %d, which is %d, %w", l.Done, l.Dest.Inode, st.Ino, err)
		}
	}
	return nil
}

// TestSaveAtEveryPowerCut does the same with a saved model, written past the page
// cache and through it.
func TestSaveAtEveryPowerCut(t *testing.T) {
	testSave(t, "direct", nil)
}

// TestCachedSaveAtEveryPowerCut has memory that direct I/O does not take, so that
// nothing but fdatasync brings the data to the drive.
func TestCachedSaveAtEveryPowerCut(t *testing.T) {
	testSave(t, "cached", func(n int) ([]byte, func(), error) { return make([]byte, n+1)[1:], func() {}, nil })
}

func testSave(t *testing.T, name string, buffer func(int) ([]byte, func(), error)) {
	rec := record(t)
	path := filepath.Join(inside.Dir("nv0"), name+".safetensors")
	sources := func(i int) []tensor.Source {
		weights := noise(300_000+4096*i, uint64(40+i))
		return []tensor.Source{
			{Name: "w", Dtype: "U8", Shape: []int64{int64(len(weights))}, Data: bytes.NewReader(weights)},
			{Name: "odd", Dtype: "U8", Shape: []int64{3001}, Data: bytes.NewReader(noise(3001, uint64(60+i)))},
		}
	}
	saved := map[int][]byte{}
	report, err := rec.CheckReplacements(4, func(i int) error {
		if _, err := tensor.Save(context.Background(), path, sources(i), &tensor.SaveOptions{Chunk: 64 << 10, Buffer: buffer}); err != nil {
			return err
		}
		var err error
		saved[i], err = os.ReadFile(path)
		return err
	}, func(dir string, i int) error {
		return crash.SameFile(filepath.Join(dir, filepath.Base(path)), saved[i])
	})
	t.Log(report)
	if err != nil {
		t.Error(err)
	}
}
