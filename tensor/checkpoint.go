package tensor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
)

// Checkpoints is a directory of saved models, one directory for each step:
//
//	step-000001000/model.safetensors
//	step-000001000/model.safetensors.culvert.json
//	latest -> step-000001000
//
// What has such a name is complete, even after a crash; latest is the step that was
// saved last. Several processes of one user may save different steps concurrently.
type Checkpoints struct {
	Dir string
	// Keep is how many steps are kept: those that were saved last, whatever their
	// numbers. 0 keeps all.
	Keep int
}

const (
	stepPrefix = "step-"
	latestName = "latest"
	modelName  = "model" + fileSuffix
)

// Path returns the path of a step's model.
func (c *Checkpoints) Path(step int64) string { return filepath.Join(c.stepDir(step), modelName) }

func (c *Checkpoints) stepDir(step int64) string {
	return filepath.Join(c.Dir, fmt.Sprintf("%s%09d", stepPrefix, step))
}

// Save saves a step, makes it the latest, and removes the steps that Keep does not
// cover. It never overwrites a step. opts may be nil.
func (c *Checkpoints) Save(ctx context.Context, step int64, tensors []Source, opts *SaveOptions) (*Manifest, error) {
	if err := c.Free(step); err != nil {
		return nil, err
	}
	target := c.stepDir(step)
	o := opts.withDefaults(tensors)
	o.alone, o.as = true, c.Path(step)
	if err := c.makeDir(o.step); err != nil {
		return nil, err
	}
	atomicfile.Sweep(c.Dir)
	dir, err := atomicfile.Create(target, atomicfile.Options{Mode: 0o755, Dir: true, Step: o.step})
	if err != nil {
		return nil, err
	}
	defer dir.Discard()
	m, err := Save(ctx, filepath.Join(dir.Name(), modelName), tensors, &o)
	if err != nil {
		return nil, err
	}
	old, err := c.publish(ctx, dir, target, o.step)
	if err != nil {
		return nil, err
	}
	for _, name := range old {
		o.step("remove")
		err = errors.Join(err, os.RemoveAll(name))
	}
	return m, err
}

// Free returns nil if a step can be saved. Otherwise it returns the reason, mostly
// that the step exists.
func (c *Checkpoints) Free(step int64) error {
	if step < 0 {
		return fmt.Errorf("checkpoint step %d must not be negative", step)
	}
	if _, err := os.Lstat(c.stepDir(step)); err == nil {
		return fmt.Errorf("checkpoint %s: %w (steps are never overwritten)", c.stepDir(step), fs.ErrExist)
	}
	return nil
}

// publish gives a step its name, makes it the latest and moves away the steps that
// Keep does not cover, which the caller removes. The lock keeps another process,
// which does not know of this step yet, from pruning it.
func (c *Checkpoints) publish(ctx context.Context, dir *atomicfile.File, target string, step func(string)) (old []string, err error) {
	unlock, err := atomicfile.LockDir(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := dir.Commit(); err != nil {
		return nil, err
	}
	if err := atomicfile.Symlink(filepath.Base(target), filepath.Join(c.Dir, latestName), "", step); err != nil {
		return nil, err
	}
	if err := syncDir(c.Dir, step); err != nil {
		return nil, err
	}
	return c.prune(target, step)
}

// makeDir creates the directory if it is missing, so that it survives a crash.
func (c *Checkpoints) makeDir(step func(string)) error {
	if st, err := os.Stat(c.Dir); err == nil && !st.IsDir() {
		return fmt.Errorf("checkpoints in %s: %w", c.Dir, unix.ENOTDIR)
	}
	step("make directory")
	return atomicfile.MkdirAll(c.Dir, 0o755)
}

// steps returns the complete steps by number.
func (c *Checkpoints) steps() ([]int64, error) {
	list, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, e := range list {
		digits, ok := strings.CutPrefix(e.Name(), stepPrefix)
		if !ok || !e.IsDir() {
			continue
		}
		if n, err := strconv.ParseInt(digits, 10, 64); err == nil && filepath.Base(c.stepDir(n)) == e.Name() {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// prune moves away the steps that Keep does not cover. It never moves the one that
// was just saved.
func (c *Checkpoints) prune(saved string, step func(string)) (old []string, err error) {
	steps, err := c.steps()
	if err != nil || c.Keep <= 0 || len(steps) <= c.Keep {
		return nil, err
	}
	for _, n := range c.byTime(steps)[:len(steps)-c.Keep] {
		dir := c.stepDir(n)
		if dir == saved {
			continue
		}
		// A step must not be incomplete under its own name while it is removed.
		name := atomicfile.TempName(dir)
		step("rename")
		if err := os.Rename(dir, name); err != nil {
			return old, err
		}
		old = append(old, name)
	}
	return old, syncDir(c.Dir, step)
}

// byTime sorts steps by when they were saved: after a return to an earlier step, the
// highest numbers are the abandoned ones. Steps of the same time are sorted by
// number.
func (c *Checkpoints) byTime(steps []int64) []int64 {
	saved := make(map[int64]time.Time, len(steps))
	for _, n := range steps {
		// Of the model, which nothing changes later. A step without one is the oldest.
		if st, err := os.Stat(c.Path(n)); err == nil {
			saved[n] = st.ModTime()
		}
	}
	slices.SortStableFunc(steps, func(a, b int64) int { return saved[a].Compare(saved[b]) })
	return steps
}
