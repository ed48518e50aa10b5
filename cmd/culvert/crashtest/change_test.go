package crashtest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/culvert-io/culvert/internal/quality/intercept"
)

// A source that changes while it is copied: the copy ends, with or without an error,
// changes nothing outside, and copies the final state when it is run again.
func TestChangedTree(t *testing.T) {
	needIntercept(t)
	for _, seed := range seeds(1, 2, 3, 4, 5, 6, 7, 8) {
		t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			g := newGrower(seed, w.path("src"), w.path("outside"))
			err := errors.Join(g.grow(14), w.writeFiles(map[string][]byte{"outside/precious": oldBytes}))
			if err != nil {
				t.Fatal(err)
			}
			outside, err := readTree(w.path("outside"))
			if err != nil {
				t.Fatal(err)
			}
			calls, changes := 0, 0
			_, err = w.watched([]string{"cp", "src", "dst"}, []string{"open", "stat", "sync"}, func(*intercept.Call) intercept.Verdict {
				if calls++; calls%8 == 0 && g.change() == nil {
					changes++
				}
				return intercept.Proceed
			})
			if errors.Is(err, errStalled) {
				t.Fatal(err)
			}
			if changes == 0 {
				t.Error("nothing changed")
			}
			if err := outside.unchanged(w.path("outside")); err != nil {
				t.Errorf("outside: %v", err)
			}
			if err := copyAgain(w); err != nil {
				t.Error(err)
			}
		})
	}
}

// copyAgain completes a copy of a source that has come to rest. Where the source has
// another kind of entry than the copy by now, a user has to remove the copy.
func copyAgain(w *world) error {
	source, err := readTree(w.path("src"))
	if err != nil {
		return err
	}
	before, err := readTree(w.path("dst"))
	if err != nil {
		return err
	}
	for path, n := range before {
		if now, ok := source[path]; ok && now.kind != n.kind {
			err = errors.Join(err, os.RemoveAll(w.path("dst", path)))
		}
		if temporary(path) {
			delete(before, path) // the journal and what it covers must go
		}
	}
	err = errors.Join(err, w.run("cp", "src", "dst"))
	now, rerr := readTree(w.path("dst"))
	return errors.Join(err, rerr, source.unchanged(w.path("src")), complete(source, before, now))
}
