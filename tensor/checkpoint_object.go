package tensor

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/culvert-io/culvert/internal/object"
)

// abandonedStep is the age from which what a killed save has left of a step is removed.
// Another process may be saving a younger one.
const abandonedStep = 24 * time.Hour

// saveObject is Save for a URL. The model of the step appears as a whole; only then are
// the steps removed that Keep does not cover.
func (c *Checkpoints) saveObject(ctx context.Context, step int64, tensors []Source, opts *SaveOptions) (*Manifest, error) {
	o := opts.withDefaults(tensors)
	o.fresh = true
	object.Sweep(ctx, joinStored(c.Dir, stepPrefix), abandonedStep)
	m, err := Save(ctx, c.Path(step), tensors, &o)
	if errors.Is(err, fs.ErrExist) {
		return nil, c.exists(step)
	}
	if err != nil {
		return nil, err
	}
	return m, c.pruneObjects(ctx, step, o.step)
}

// freeObject is Free for a URL.
func (c *Checkpoints) freeObject(step int64) error {
	path := c.Path(step)
	if err := object.Writable(object.Context(), path); err != nil {
		return err
	}
	_, err := statStored(path)
	switch {
	case err == nil:
		return c.exists(step)
	case object.IsNoObject(err):
		return nil
	}
	return err
}

// objectSteps returns the steps, as Steps does, and the manifests without a model that
// killed saves have left.
func (c *Checkpoints) objectSteps(ctx context.Context) (steps []Step, orphans []string, err error) {
	list, err := object.ListAll(ctx, c.Dir)
	if err != nil {
		return nil, nil, err
	}
	there := map[int64]bool{}
	manifests := map[int64]time.Time{}
	for _, info := range list {
		dir, name, _ := strings.Cut(info.Name, "/")
		n, ok := parseStep(dir)
		switch {
		case !ok:
		case name == modelName:
			there[n] = true
			steps = append(steps, Step{Number: n, Path: c.Path(n), Bytes: info.Size, Saved: info.Modified})
		case name == modelName+manifestSuffix:
			manifests[n] = info.Modified
		}
	}
	for n, saved := range manifests {
		if !there[n] && time.Since(saved) > abandonedStep {
			orphans = append(orphans, manifestBeside(c.Path(n)))
		}
	}
	sortSteps(steps)
	return steps, orphans, nil
}

// pruneObjects removes the steps that Keep does not cover. The model goes first: without
// it there is no step.
func (c *Checkpoints) pruneObjects(ctx context.Context, saved int64, step func(string)) error {
	steps, old, err := c.objectSteps(ctx)
	if err != nil {
		return err
	}
	for _, s := range c.surplus(steps, saved) {
		old = append(old, s.Path, manifestBeside(s.Path))
	}
	for _, url := range old {
		step("remove")
		err = errors.Join(err, object.Remove(ctx, url))
	}
	return err
}

// latestOf is the directory of the step that was saved last, of a URL that ends with
// "latest"; "" if there is none.
func latestOf(url string) string {
	url = strings.TrimSuffix(url, "/")
	if !object.IsURL(url) || storedName(url) != latestName {
		return ""
	}
	c := &Checkpoints{Dir: dirStored(url)}
	steps, err := c.Steps(object.Context())
	if err != nil || len(steps) == 0 {
		return ""
	}
	return c.stepDir(steps[len(steps)-1].Number)
}
