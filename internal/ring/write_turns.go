package ring

import (
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// writersPerFile is how many threads may write to one file at a time. The kernel
	// admits one; the second waits there, spinning, and goes on at once; the third wakes
	// and warms its bytes meanwhile. More would only spin: four callers with 1 MiB, each
	// cut in four, took 0.96 s of processor time per GB on an H200 machine.
	writersPerFile = 3
	// warmLen is how many bytes are warmed: half of a core's own cache of 2 MiB.
	warmLen = 1 << 20
	// cacheLine is what a load brings into the cache.
	cacheLine = 64
)

// writeTurns lets long buffered writes to one file take turns, whatever descriptors
// they use. The zero value is ready to use.
type writeTurns struct {
	mu     sync.Mutex
	files  map[fileID]*writeTurn
	warmed atomic.Int64 // bytes
}

type fileID struct{ dev, ino uint64 }

type writeTurn struct {
	id     fileID
	users  int // that hold or wait for a place
	places chan struct{}
}

// enter waits for a place to write to a file. A nil turn needs none. contended means that
// another thread writes to the file, or is about to.
func (w *writeTurns) enter(fd int) (_ *writeTurn, contended bool) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil, false // the write says what is wrong
	}
	id := fileID{st.Dev, st.Ino}
	w.mu.Lock()
	t := w.files[id]
	if t == nil {
		if w.files == nil {
			w.files = map[fileID]*writeTurn{}
		}
		t = &writeTurn{id: id, places: make(chan struct{}, writersPerFile)}
		w.files[id] = t
	}
	t.users++
	contended = t.users > 1
	w.mu.Unlock()
	t.places <- struct{}{}
	return t, contended
}

// warm reads the start of what is to be written into the core's own cache, while another
// thread has the file's lock. From memory, where the GPU has left it, the kernel copies
// 1 MiB in 1.6 times the time, holding the lock; reading it before takes the difference
// (see docs/performance.md).
func (w *writeTurns) warm(p []byte) {
	p = p[:min(len(p), warmLen)]
	w.warmed.Add(int64(len(p)))
	var sum byte
	for i := 0; i < len(p); i += cacheLine {
		sum += p[i]
	}
	runtime.KeepAlive(sum) // so that the loads are not removed
}

func (w *writeTurns) leave(t *writeTurn) {
	if t == nil {
		return
	}
	<-t.places
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(w.files, t.id)
	}
}
