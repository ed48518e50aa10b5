package cufile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/route"
)

// A read through BAR1 or by the peers' mapping keeps the memory it writes to, so that it may rely on an
// answer that is not quite new; the other routes ask every time.
func TestOnlyAMappingMayLookLate(t *testing.T) {
	f := newFixture(t, softConfig(), 8192)
	for id := range f.usable() {
		restore := cufile.SetCheckInterval(time.Hour)
		h, buf := f.by(id), f.buffer(4<<20)
		mem := buf.Span().Slice(0, 8192)
		if _, err := h.ReadAt(context.Background(), mem, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.dev.Free(buf.Span().Base); err != nil {
			t.Fatal(err)
		}
		_, err := h.ReadAt(context.Background(), mem, 0)
		if freed := errors.Is(err, route.ErrFreed); freed == (id == route.Bar || id == route.P2PDMA) {
			t.Errorf("%v: an hour may pass before a mapping is looked at again, no time for the others: %v", id, err)
		}
		restore()
		if _, err := h.ReadAt(context.Background(), mem, 0); !errors.Is(err, route.ErrFreed) {
			t.Errorf("%v: when it looks it must see: %v", id, err)
		}
		buf.Close()
		h.Close()
	}
}
