package crashtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/internal/quality/intercept"
	"github.com/culvert-io/culvert/tensor"
)

var secret = bytes.Repeat([]byte("SECRET-OF-THE-VICTIM"), 400)

// A victim is a command that root runs in a directory to which another user writes.
type victim struct {
	args    []string
	prepare func(w *world) error // may be nil
	// right returns an error if the command has succeeded and its result is wrong. It
	// may be nil.
	right func(w *world) error
}

var victims = map[string]victim{
	"cp": {args: []string{"cp", "outside/secret", "shared/out"}, right: func(w *world) error {
		// The attacker may make the target a directory: then it is copied into it.
		if st, err := os.Lstat(w.path("shared/out")); err == nil && st.IsDir() {
			return w.ours("shared/out/secret", secret)
		}
		return w.ours("shared/out", secret)
	}},
	"cp-tree": {args: []string{"cp", "outside/tree", "shared/tree"}, right: func(w *world) error {
		return errors.Join(w.ours("shared/tree/a", secret), w.ours("shared/tree/dir/b", secret))
	}},
	"save": {args: []string{"save", "outside/m.safetensors", "shared/m.safetensors"}, right: func(w *world) error {
		return w.ourModel("shared/m.safetensors")
	}},
	"step": {args: []string{"save", "outside/m.safetensors", "shared/run", "--step", "1"}, right: func(w *world) error {
		return w.ourModel("shared/run/step-000000001/model.safetensors")
	}},
	"verify": {args: []string{"verify", "--create", "shared/m.safetensors"}, prepare: func(w *world) error {
		return w.writeFiles(map[string][]byte{"shared/m.safetensors": secretModel()})
	}, right: func(w *world) error { return w.ourModel("shared/m.safetensors") }},
	"hold": {args: []string{"load", "outside/m.safetensors", "gpu:0", "--hold", "shared/s"}},
}

func secretModel() []byte {
	text := fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, len(secret), len(secret))
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), secret...)
}

// ours returns an error unless a file is this user's, regular and has these contents.
func (w *world) ours(name string, want []byte) error {
	st, err := os.Lstat(w.path(name))
	if err != nil {
		return err
	}
	if uid := st.Sys().(*syscall.Stat_t).Uid; int(uid) != os.Getuid() || !st.Mode().IsRegular() {
		return fmt.Errorf("%s is %v of user %d", name, st.Mode(), uid)
	}
	return w.oneOf(name, want)
}

func (w *world) ourModel(name string) error {
	st, err := os.Lstat(w.path(name))
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %v", name, st.Mode())
	}
	_, verr := tensor.Verify(w.t.Context(), w.path(name))
	return errors.Join(err, verr)
}

// A second user plants something at the names that a command is about to use: at one
// of its system calls, and at some of the later ones. It may not change, stall or read
// what is not its own. In a directory with the sticky bit, a command that succeeds has
// done what it says; without it, others may replace all that is in there.
func TestSecondUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: a second user takes part")
	}
	needIntercept(t)
	for name, v := range victims {
		for mode, sticky := range map[string]fs.FileMode{"sticky": fs.ModeSticky, "open": 0} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				for _, seed := range seeds(1) {
					v.attackAtEach(t, sticky, seed)
				}
			})
		}
	}
}

// attackAtEach attacks at each system call that has a path in the shared directory.
func (v *victim) attackAtEach(t *testing.T, sticky fs.FileMode, seed uint64) {
	for n := 0; ; n++ {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		attacked, planted, err := v.attackAt(t, sticky, n, rng)
		if err != nil {
			t.Errorf("seed %d, attack at call %d, %q: %v", seed, n, planted, err)
			return
		}
		if !attacked {
			t.Logf("attacked at each of %d system calls", n)
			if n < 3 {
				t.Error("the command does almost nothing there: are its system calls seen?")
			}
			return
		}
	}
}

func (v *victim) attackAt(t *testing.T, sticky fs.FileMode, n int, rng *rand.Rand) (attacked bool, planted []string, err error) {
	w, outside, err := v.newWorld(t, sticky)
	if err != nil {
		return false, nil, err
	}
	defer w.remove()
	a := newAttacker(t)
	defer a.stop()
	count := 0
	_, err = w.watched(v.args, touching, func(c *intercept.Call) intercept.Verdict {
		path := w.sharedPath(c, rng)
		if path == "" {
			return intercept.Proceed
		}
		if count++; count-1 == n || count > n && rng.IntN(4) == 0 {
			r := request{Plant: plants[rng.IntN(len(plants))], Path: path, Outside: w.path("outside"), Remove: sticky == 0}
			if got, err := a.do(r); err == nil && got.Done {
				planted = append(planted, fmt.Sprintf("%s at %s of %s", r.Plant, c.Name, strings.TrimPrefix(path, w.dir)))
			}
		}
		return intercept.Proceed
	})
	if errors.Is(err, errStalled) {
		return true, planted, err
	}
	if err == nil && v.right != nil && sticky != 0 {
		if err := v.right(w); err != nil {
			return true, planted, fmt.Errorf("it succeeded, but %w", err)
		}
	}
	// What was planted stays, and stalls nothing later either.
	if err := w.run(v.args...); errors.Is(err, errStalled) {
		return true, planted, err
	}
	if err := outside.unchanged(w.path("outside")); err != nil {
		return true, planted, err
	}
	got, err := a.do(request{Path: w.path("shared"), Read: secret[:40]})
	if err == nil && got.Where != "" {
		err = fmt.Errorf("the other user can read the secret at %s", got.Where)
	}
	return count > n, planted, err
}

// touching are the system calls with paths.
var touching = []string{"open", "stat", "mkdir", "unlink", "rename", "link", "symlink", "chmod", "bind"}

// sharedPath returns a path of the call that is below the shared directory.
func (w *world) sharedPath(c *intercept.Call, rng *rand.Rand) string {
	if c.Name == "bind" {
		return w.path("shared/s")
	}
	path := c.Paths[rng.IntN(len(c.Paths))]
	if !strings.HasPrefix(path, "/") {
		path = w.path(path)
	}
	path = filepath.Clean(path)
	if !strings.HasPrefix(path, w.path("shared")+"/") {
		return ""
	}
	return path
}

// newWorld makes the victim's directory, which is private, and the shared one.
func (v *victim) newWorld(t *testing.T, sticky fs.FileMode) (*world, tree, error) {
	t.Helper()
	w := newWorld(t)
	err := w.writeFiles(map[string][]byte{
		"outside/precious": oldBytes, "outside/secret": secret, "outside/m.safetensors": secretModel(),
		"outside/tree/a": secret, "outside/tree/dir/b": secret,
	})
	err = errors.Join(err, os.Symlink("a", w.path("outside/tree/link")), os.Mkdir(w.path("shared"), 0o777),
		os.Chmod(w.path("shared"), 0o777|sticky), os.Chmod(w.dir, 0o711), os.Chmod(filepath.Dir(w.dir), 0o711))
	if err == nil && v.prepare != nil {
		err = v.prepare(w)
	}
	if err != nil {
		return nil, nil, err
	}
	outside, err := readTree(w.path("outside"))
	return w, outside, err
}
