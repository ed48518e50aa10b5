package datapath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/lab/inside"
	"github.com/culvert-io/culvert/route"
)

// TestUnplugUnderRead pulls drives out while every route reads from them. A
// read that was not answered by the drive must be an error: a raw descriptor
// returns 0 bytes and no error then, which nobody may take for data.
func TestUnplugUnderRead(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_UNPLUG")
	const size = 256 << 10 // what every route takes in one request
	raw, err := inside.Disk("hotraw")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ drive, name string }{
		{"hotfs", filepath.Join(inside.Dir("hotfs"), "f")},
		{"hotraw", raw},
	} {
		t.Run(tt.drive, func(t *testing.T) {
			if _, err := cold(t, tt.name).WriteAt(aligned(t, size, 7), 0); err != nil {
				t.Fatal(err)
			}
			w := newFixture(t)
			var readers []*reader
			for _, id := range w.routes(tt.name) {
				readers = append(readers, w.reader(tt.name, id, size))
			}
			for _, r := range readers {
				<-r.started
			}
			if err := inside.Unplug(tt.drive); err != nil {
				t.Fatal(err)
			}
			for _, r := range readers {
				<-r.ended
				t.Logf("%v: %d reads, then %v", r.id, r.reads, r.err)
			}
		})
	}
}

// A reader reads a file over and over until that fails.
type reader struct {
	id             route.ID
	started, ended chan struct{}
	reads          int
	err            error
}

func (w *fixture) reader(name string, id route.ID, size uint64) *reader {
	w.t.Helper()
	h := w.register(name, os.O_RDONLY)
	if err := h.Require(0, id); err != nil {
		w.t.Fatal(err)
	}
	mem := w.buffer(size)
	f, err := os.Open(name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	r := &reader{id: id, started: make(chan struct{}), ended: make(chan struct{})}
	go r.run(w.t, f, h, mem)
	return r
}

// run keeps f open to forget the file by: its name cannot be opened any more
// once the drive is gone, and what is cached then could be read for ever.
func (r *reader) run(t *testing.T, f *os.File, h *cufile.File, mem gpu.Span) {
	defer close(r.ended)
	var rc route.Receipt
	for ; r.err == nil; r.reads++ {
		forget(f)
		rc, r.err = h.ReadAt(t.Context(), mem, 0)
		if r.reads == 0 {
			close(r.started)
		}
		if r.err == nil && uint64(rc.Bytes) != mem.Len {
			t.Errorf("%v: %d of %d bytes and no error: %v", r.id, rc.Bytes, mem.Len, &rc)
			return
		}
	}
}
