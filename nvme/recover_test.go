package nvme

import (
	"context"
	"errors"
	"testing"

	"github.com/culvert-io/culvert/soft"
)

// TestTroubleIsHandledOnce has two who noticed the same trouble deal with it.
func TestTroubleIsHandledOnce(t *testing.T) {
	b, err := soft.New(soft.Config{Memory: 2 << 20, Heap: true, Drives: []soft.Drive{{Size: 1 << 20}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c, err := Open(b.Transport(0), Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen := problem{kind: broken, cause: ErrFatal, gen: c.gen.Load()}
	for range 2 {
		c.handle(c.shared[0], seen, false)
	}
	if n := c.Resets(); n != 1 {
		t.Errorf("the controller was reset %d times for one reason", n)
	}
	// Who holds the lock only stops it: what follows fails until it is unlocked.
	c.lock()
	c.handle(c.admin, problem{kind: broken, cause: ErrTimeout, gen: c.gen.Load()}, true)
	if err := c.delete(0, 1); !errors.Is(err, ErrReset) {
		t.Errorf("a command to a controller that is down: %v", err)
	}
	c.unlock()
	if err := c.namespaces[0].Flush(context.Background()); err != nil {
		t.Error(err)
	}
}
