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
// saved last. Several processes may save
// different steps concurrently.
type Checkpoints struct {
	Dir string
	// Keep is how many of the newest steps are kept. 0 keeps all.
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
	atomicfile.Sweep(filepath.Join(c.Dir, stepPrefix))
	dir, err := atomicfile.Create(target, atomicfile.Options{Mode: 0o755, Dir: true, Step: o.step})
	if err != nil {
		return nil, err
	}
	defer dir.Discard()
	m, err := Save(ctx, filepath.Join(dir.Name(), modelName), tensors, &o)
	if err != nil {
		return nil, err
	}
	old, err := c.publish(dir, target, o.step)
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
func (c *Checkpoints) publish(dir *atomicfile.File, target string, step func(string)) (old []string, err error) {
	unlock, err := atomicfile.LockDir(c.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := dir.Commit(); err != nil {
		return nil, err
	}
	latest, temp := filepath.Join(c.Dir, latestName), filepath.Join(c.Dir, "."+latestName+atomicfile.Suffix)
	if err := atomicfile.Symlink(filepath.Base(target), latest, temp, step); err != nil {
		return nil, err
	}
	if err := syncDir(c.Dir, step); err != nil {
		return nil, err
	}
	return c.prune(target, step)
}

// makeDir creates the directory if it is missing, so that it survives a crash.
func (c *Checkpoints) makeDir(step func(string)) error {
	if st, err := os.Stat(c.Dir); err == nil {
		if !st.IsDir() {
			return fmt.Errorf("checkpoints in %s: %w", c.Dir, unix.ENOTDIR)
		}
		return nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(c.Dir)), step)
}

// steps returns the complete steps, oldest first.
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

// prune moves away the steps that Keep does not cover. It always keeps the newest
// one, and the one that was just saved, even if its number is low.
func (c *Checkpoints) prune(saved string, step func(string)) (old []string, err error) {
	steps, err := c.steps()
	if err != nil || c.Keep <= 0 || len(steps) <= c.Keep {
		return nil, err
	}
	for _, n := range steps[:len(steps)-c.Keep] {
		dir := c.stepDir(n)
		if dir == saved {
			continue
		}
		// A step must not be incomplete under its own name while it is removed.
		name := filepath.Join(c.Dir, "."+filepath.Base(dir)+".old"+atomicfile.Suffix)
		step("rename")
		if err := os.Rename(dir, name); err != nil {
			return old, err
		}
		old = append(old, name)
	}
	return old, syncDir(c.Dir, step)
}
