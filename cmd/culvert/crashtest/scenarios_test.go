package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/tensor"
)

var (
	oldBytes = bytes.Repeat([]byte("the old file. "), 500)
	newBytes = bytes.Repeat([]byte("the new file! "), 10_000)
)

func TestKilledCopyOfAFile(t *testing.T) {
	for name, before := range map[string][]byte{"new": nil, "replace": oldBytes} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scenario{args: []string{"cp", "src", "dst/out"}}
			s.prepare = func(w *world) error {
				files := map[string][]byte{"src": newBytes, "dst/bystander": oldBytes}
				if before != nil {
					files["dst/out"] = before
				}
				return w.writeFiles(files)
			}
			s.found = func(w *world) error {
				now, err := readTree(w.path("dst"))
				if err != nil {
					return err
				}
				for path := range now {
					if path != "out" && path != "bystander" && !temporary(path) {
						return fmt.Errorf("%q was left", path)
					}
				}
				return errors.Join(w.oneOf("dst/out", before, newBytes), w.oneOf("dst/bystander", oldBytes), now.private())
			}
			s.again = func(w *world) error {
				err := errors.Join(w.run(s.args...), w.oneOf("dst/out", newBytes))
				return errors.Join(err, w.only("dst", "out", "bystander"))
			}
			s.killAtEach(t)
		})
	}
}

// A large file has a part that survives a kill, and that the next copy continues.
func TestKilledCopyOfALargeFile(t *testing.T) {
	t.Parallel()
	s := scenario{args: []string{"cp", "src", "dst/out", "--json"}}
	resumed := 0
	s.prepare = func(w *world) error {
		return errors.Join(w.writeFiles(map[string][]byte{"dst/out": oldBytes}), w.writeLarge("src"))
	}
	s.found = func(w *world) error {
		list, err := os.ReadDir(w.path("dst"))
		for _, e := range list {
			if name := e.Name(); name != "out" && name != ".out.culvert-part" && !temporary(name) {
				err = errors.Join(err, fmt.Errorf("%q was left", name))
			}
		}
		if w.oneOf("dst/out", oldBytes) != nil {
			err = errors.Join(err, w.isLarge("dst/out"))
		}
		return err
	}
	s.again = func(w *world) error {
		err := w.run(s.args...)
		if strings.Contains(w.out.String(), `"resumed": `) {
			resumed++
		}
		return errors.Join(err, w.isLarge("dst/out"), w.only("dst", "out"))
	}
	s.killAtEach(t)
	if resumed < 3 {
		t.Errorf("%d copies continued what a kill had left", resumed)
	}
}

// largeSize is that of a file that is resumed in the middle, largeData where it has
// data, of which each byte is the MiB that it is in. The rest are holes.
const largeSize = 66 << 20

var largeData = []int64{0, 21 << 20, 40 << 20, 65 << 20}

func (w *world) writeLarge(name string) error {
	f, err := os.Create(w.path(name))
	if err != nil {
		return err
	}
	for _, off := range largeData {
		_, werr := f.WriteAt(bytes.Repeat([]byte{byte(off>>20) + 1}, 1<<20), off)
		err = errors.Join(err, werr)
	}
	return errors.Join(err, f.Truncate(largeSize), f.Close())
}

// isLarge returns an error unless a file is what writeLarge writes.
func (w *world) isLarge(name string) error {
	f, err := os.Open(w.path(name))
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() != largeSize {
		return fmt.Errorf("%s has not %d bytes: %v, %w", name, largeSize, st, err)
	}
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	for off := int64(0); off < largeSize; off += 1 << 20 {
		fill := byte(0)
		if slices.Contains(largeData, off) {
			fill = byte(off>>20) + 1
		}
		for i := range want {
			want[i] = fill
		}
		if _, err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s differs in the MiB at %d, %w", name, off, err)
		}
	}
	return nil
}

func TestKilledCopyOfATree(t *testing.T) {
	for _, seed := range seeds(1, 2) {
		t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) {
			t.Parallel()
			var before, source tree
			s := scenario{args: []string{"cp", "src", "dst"}}
			s.prepare = func(w *world) (err error) {
				// The destination has an older copy of a part, and a file of its own.
				if err := growBoth(w, seed); err != nil {
					return err
				}
				if before, err = readTree(w.path("dst")); err != nil {
					return err
				}
				source, err = readTree(w.path("src"))
				return err
			}
			s.found = func(w *world) error {
				now, err := readTree(w.path("dst"))
				return errors.Join(err, partial(source, before, now), source.unchanged(w.path("src")))
			}
			s.again = func(w *world) error {
				if err := w.run(s.args...); err != nil {
					return err
				}
				now, err := readTree(w.path("dst"))
				return errors.Join(err, complete(source, before, now), source.unchanged(w.path("src")))
			}
			s.killAtEach(t)
		})
	}
}

// growBoth grows a source, and a destination that has old contents of one of its files.
func growBoth(w *world, seed uint64) error {
	g := newGrower(seed, w.path("src"), w.path("outside"))
	if err := g.grow(9); err != nil {
		return err
	}
	if err := w.writeFiles(map[string][]byte{"dst/own": oldBytes, "outside/precious": oldBytes}); err != nil {
		return err
	}
	list, err := os.ReadDir(w.path("src"))
	for _, e := range list {
		if e.Type().IsRegular() {
			return errors.Join(err, os.WriteFile(w.path("dst", e.Name()), oldBytes, 0o600))
		}
	}
	return err
}

// model returns a safetensors file.
func model(fill byte, n int) []byte {
	text := fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, n, n)
	head := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	return append(head, bytes.Repeat([]byte{fill}, n)...)
}

// saved returns an error unless a file is a complete model with a manifest that
// describes it. It returns the byte that the model is full of.
func (w *world) saved(name string) (byte, error) {
	if _, err := tensor.Verify(w.t.Context(), w.path(name)); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		return 0, err
	}
	return data[len(data)-1], nil
}

func TestKilledSave(t *testing.T) {
	t.Parallel()
	s := scenario{args: []string{"save", "new.safetensors", "dst/m.safetensors"}}
	s.prepare = func(w *world) error {
		err := w.writeFiles(map[string][]byte{"old.safetensors": model('o', 5000), "new.safetensors": model('n', 9000)})
		return errors.Join(err, os.Mkdir(w.path("dst"), 0o700), w.run("save", "old.safetensors", "dst/m.safetensors"))
	}
	s.found = func(w *world) error {
		got, err := w.saved("dst/m.safetensors")
		if err == nil && got != 'o' && got != 'n' {
			err = fmt.Errorf("the model is full of %q", got)
		}
		return err
	}
	s.again = func(w *world) error {
		if err := w.run(s.args...); err != nil {
			return err
		}
		got, err := w.saved("dst/m.safetensors")
		if err == nil && got != 'n' {
			err = errors.New("the model is the old one")
		}
		return errors.Join(err, w.only("dst", "m.safetensors", "m.safetensors.culvert.json"))
	}
	s.killAtEach(t)
}

func TestKilledCheckpoint(t *testing.T) {
	t.Parallel()
	s := scenario{args: []string{"save", "new.safetensors", "run", "--step", "2", "--keep", "1"}}
	s.prepare = func(w *world) error {
		err := w.writeFiles(map[string][]byte{"old.safetensors": model('o', 5000), "new.safetensors": model('n', 9000)})
		return errors.Join(err, w.run("save", "old.safetensors", "run", "--step", "1"))
	}
	s.found = func(w *world) error { return w.checkpoints() }
	s.again = func(w *world) error {
		err := w.run(s.args...)
		if _, serr := os.Stat(w.path("run/step-000000002")); err != nil && serr == nil && strings.Contains(err.Error(), "never overwritten") {
			err = nil // the kill came after the step was complete
		}
		// A later step removes what the kill left.
		if err = errors.Join(err, w.run("save", "new.safetensors", "run", "--step", "3", "--keep", "1")); err != nil {
			return err
		}
		return errors.Join(w.checkpoints(), w.only("run", "step-000000003", "latest"))
	}
	s.killAtEach(t)
}

// checkpoints returns an error unless every step is complete and latest is one.
func (w *world) checkpoints() error {
	steps, err := filepath.Glob(w.path("run/step-*"))
	if err != nil {
		return err
	}
	for _, step := range append(steps, w.path("run/latest")) {
		rel, _ := filepath.Rel(w.dir, step)
		if _, err := w.saved(filepath.Join(rel, "model.safetensors")); err != nil {
			return err
		}
	}
	return nil
}

func TestKilledManifest(t *testing.T) {
	t.Parallel()
	s := scenario{args: []string{"verify", "--create", "dir/m.safetensors"}}
	s.prepare = func(w *world) error {
		return w.writeFiles(map[string][]byte{"dir/m.safetensors": model('o', 5000)})
	}
	s.found = func(w *world) error {
		_, err := w.saved("dir/m.safetensors")
		if errors.Is(err, tensor.ErrNoManifest) {
			err = nil
		}
		return errors.Join(err, w.oneOf("dir/m.safetensors", model('o', 5000)))
	}
	s.again = func(w *world) error {
		err := w.run(s.args...)
		_, verr := w.saved("dir/m.safetensors")
		return errors.Join(err, verr, w.only("dir", "m.safetensors", "m.safetensors.culvert.json"))
	}
	s.killAtEach(t)
}

func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := scenario{args: []string{"load", "m.safetensors", "gpu:0", "--hold", "run/s"}}
	s.prepare = func(w *world) error {
		return w.writeFiles(map[string][]byte{"m.safetensors": model('o', 5000), "run/bystander": oldBytes})
	}
	s.found = func(w *world) error {
		st, err := os.Lstat(w.path("run/s"))
		if err == nil && (st.Mode().Type() != fs.ModeSocket || st.Mode().Perm() != 0o600) {
			err = fmt.Errorf("the socket is %v", st.Mode())
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	s.again = func(w *world) error {
		err := w.run(s.args...)
		if !strings.Contains(w.out.String(), "holding run/s") {
			err = errors.Join(err, fmt.Errorf("it did not serve:\n%s", w.out))
		}
		return errors.Join(err, w.only("run", "bystander"))
	}
	s.killAtEach(t)
}
