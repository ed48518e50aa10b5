package ring

import (
	"context"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
)

// TestBehindKeepsItsFile: what is asked for behind a request goes on when the request has
// ended and its caller uses the Request again, for another file.
func TestBehindKeepsItsFile(t *testing.T) {
	const n, rest = 4 << 20, 64 << 20
	mem := newBuffer(t, openGPU(t), n)
	f := newFile(t, noise(5, n))
	files := &behindFiles{fetched: make(chan int, 64)}
	r := openRing(t, mem.dev, Config{Slot: 1 << 20, Workers: 1, sys: files})
	s := storage.NewStream(func() (int64, error) { return rest, nil }, func() int64 { return 1 << 40 })
	reqs, res := make([]Request, 1), make([]Result, 1)
	for range 8 {
		reqs[0] = Request{Buffered: f.buffered, Direct: -1, Cache: s, Addr: mem.addr(), Len: n}
		s.Defer(storage.Range{From: n, To: rest}) // was measured
		if err := r.Run(context.Background(), reqs, res); err != nil || res[0].N != n {
			t.Fatalf("%+v, %v", res[0], err)
		}
		reqs[0] = Request{Buffered: -7}
	}
	s.Wait()
	close(files.fetched)
	for fd := range files.fetched {
		if fd != f.buffered {
			t.Errorf("descriptor %d was asked, want %d", fd, f.buffered)
		}
	}
}

// behindFiles have nothing in the page cache, and are slow to fetch what is behind a request.
type behindFiles struct {
	oddFiles
	fetched chan int // descriptors
}

func (f *behindFiles) Residency(_ int, _, n int64) (storage.Residency, error) {
	return storage.Residency{Pages: n / page}, nil
}

func (f *behindFiles) WillNeed(int, int64, int64) error { return nil }

func (f *behindFiles) Fetch(fd int, off, n int64) error {
	if off >= 4<<20 {
		f.fetched <- fd
		time.Sleep(time.Millisecond)
	}
	return nil
}
