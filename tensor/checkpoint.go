package tensor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/object"
)

// Checkpoints is a directory of saved models, one directory for each step:
//
//	step-000001000/model.safetensors
//	step-000001000/model.safetensors.culvert.json
//	latest -> step-000001000
//
// What has such a name is complete, even after a crash; latest is the step that was
// saved last. Several processes of one user may save different steps concurrently.
//
// In a store there is no link: latest stands for the step whose model the store has
// received last. A step is there if its model is, which appears as a whole.
type Checkpoints struct {
	Dir string // or a URL, s3://BUCKET/PREFIX, if the program imports package object
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
func (c *Checkpoints) Path(step int64) string { return joinStored(c.stepDir(step), modelName) }

func (c *Checkpoints) stepDir(step int64) string { return joinStored(c.Dir, stepName(step)) }

func stepName(step int64) string { return fmt.Sprintf("%s%09d", stepPrefix, step) }

// parseStep is the step whose directory has this name.
func parseStep(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, stepPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && stepName(n) == name
}

// Save saves a step, makes it the latest, and removes the steps that Keep does not
// cover. It never overwrites a step. opts may be nil.
func (c *Checkpoints) Save(ctx context.Context, step int64, tensors []Source, opts *SaveOptions) (*Manifest, error) {
	if err := c.Free(step); err != nil {
		return nil, err
	}
	if object.IsURL(c.Dir) {
		return c.saveObject(ctx, step, tensors, opts)
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
	old, err := c.publish(ctx, dir, step, o.step)
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
	if object.IsURL(c.Dir) {
		return c.freeObject(step)
	}
	if _, err := os.Lstat(c.stepDir(step)); err == nil {
		return c.exists(step)
	}
	return nil
}

func (c *Checkpoints) exists(step int64) error {
	return fmt.Errorf("checkpoint %s: %w (steps are never overwritten)", c.stepDir(step), unix.EEXIST)
}

// publish gives a step its name, makes it the latest and moves away the steps that
// Keep does not cover, which the caller removes. The lock keeps another process,
// which does not know of this step yet, from pruning it.
func (c *Checkpoints) publish(ctx context.Context, dir *atomicfile.File, saved int64, step func(string)) (old []string, err error) {
	unlock, err := atomicfile.LockDir(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := dir.Commit(); err != nil {
		return nil, err
	}
	if err := atomicfile.Symlink(stepName(saved), filepath.Join(c.Dir, latestName), "", step); err != nil {
		return nil, err
	}
	if err := syncDir(c.Dir, step); err != nil {
		return nil, err
	}
	return c.prune(ctx, saved, step)
}

// makeDir creates the directory if it is missing, so that it survives a crash.
func (c *Checkpoints) makeDir(step func(string)) error {
	if st, err := os.Stat(c.Dir); err == nil && !st.IsDir() {
		return fmt.Errorf("checkpoints in %s: %w", c.Dir, unix.ENOTDIR)
	}
	step("make directory")
	return atomicfile.MkdirAll(c.Dir, 0o755)
}

// A Step is a checkpoint.
type Step struct {
	Number int64     `json:"step"`
	Path   string    `json:"path"` // of its model
	Bytes  int64     `json:"bytes"`
	Saved  time.Time `json:"saved"`
}

// Steps returns the complete steps in the order in which they were saved. After a return
// to an earlier step, the highest numbers are the abandoned ones.
func (c *Checkpoints) Steps(ctx context.Context) (steps []Step, err error) {
	if object.IsURL(c.Dir) {
		steps, _, err = c.objectSteps(ctx)
		return steps, err
	}
	list, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		n, ok := parseStep(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		step := Step{Number: n, Path: c.Path(n)}
		// The time is that of the model, which nothing changes later. A step without one
		// is the oldest.
		if st, err := os.Stat(step.Path); err == nil {
			step.Bytes, step.Saved = st.Size(), st.ModTime()
		}
		steps = append(steps, step)
	}
	sortSteps(steps)
	return steps, nil
}

// sortSteps sorts by time; steps of the same time by number.
func sortSteps(steps []Step) {
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(a.Saved.Compare(b.Saved), cmp.Compare(a.Number, b.Number))
	})
}

// surplus are the steps that Keep does not cover, without the one that was just saved.
func (c *Checkpoints) surplus(steps []Step, saved int64) []Step {
	if c.Keep <= 0 || len(steps) <= c.Keep {
		return nil
	}
	return slices.DeleteFunc(steps[:len(steps)-c.Keep], func(s Step) bool { return s.Number == saved })
}

// prune moves away the steps that Keep does not cover.
func (c *Checkpoints) prune(ctx context.Context, saved int64, step func(string)) (old []string, err error) {
	steps, err := c.Steps(ctx)
	if err != nil {
		return nil, err
	}
	surplus := c.surplus(steps, saved)
	if len(surplus) == 0 {
		return nil, nil
	}
	for _, s := range surplus {
		// A step must not be incomplete under its own name while it is removed.
		dir := c.stepDir(s.Number)
		name := atomicfile.TempName(dir)
		step("rename")
		if err := os.Rename(dir, name); err != nil {
			return old, err
		}
		old = append(old, name)
	}
	return old, syncDir(c.Dir, step)
}
