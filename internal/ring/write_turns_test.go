package ring

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// TestWritersTakeTurns: of many callers that write to one file, through descriptors of
// their own, three at a time are in the kernel; all but the first have warmed their bytes before. The
// bytes are right, and nothing is kept.
func TestWritersTakeTurns(t *testing.T) {
	const callers, each = 5, 1 << 20
	files := &oddFiles{}
	r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 2 * callers, sys: files})
	f := newFile(t, noise(1, callers*each))
	var inside, calls atomic.Int32
	release := make(chan struct{})
	files.set(func(c call) (int, error) {
		if c.verb == "pwrite" {
			calls.Add(1)
			inside.Add(1)
			<-release
		}
		return whole, nil
	})
	data := noise(2, callers*each)
	b := newBuffer(t, r.dev, len(data))
	b.set(t, data)
	var wg sync.WaitGroup
	for i := range int64(callers) {
		fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.buffered), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		wg.Go(func() {
			res, err := run1(r, Request{Write: true, Buffered: fd, Direct: -1, Off: i * each, Addr: b.addr() + gpu.Addr(i*each), Len: each})
			if err != nil || res.N != each {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	for r.files.turns.users() < callers {
		runtime.Gosched()
	}
	for inside.Load() < 3 {
		runtime.Gosched()
	}
	if got, places := inside.Load(), r.files.turns.places(); got > 3 || places != 3 {
		t.Errorf("%d of %d callers are in the kernel, of %d that may, want 3", got, callers, places)
	}
	if got := r.files.turns.warmed.Load(); got != 2*each {
		t.Errorf("%d bytes were warmed, want %d of those that are second and third", got, 2*each)
	}
	close(release)
	wg.Wait()
	if got := calls.Load(); got != callers {
		t.Errorf("%d writes of %d requests", got, callers)
	}
	if got := r.files.turns.warmed.Load(); got != (callers-1)*each {
		t.Errorf("%d bytes were warmed, want %d", got, (callers-1)*each)
	}
	if string(f.content(t)) != string(data) {
		t.Error("wrong bytes")
	}
	if n := len(r.files.turns.files); n != 0 {
		t.Errorf("%d files are kept", n)
	}
}

// users counts those that write or wait.
func (w *writeTurns) users() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.files {
		n += t.users
	}
	return n
}

// places is how many may write to the files together.
func (w *writeTurns) places() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.files {
		n += cap(t.places)
	}
	return n
}

// TestFilesDoNotWaitForEachOther: a write that does not end keeps no other file's
// writers.
func TestFilesDoNotWaitForEachOther(t *testing.T) {
	var w writeTurns
	a, b := newFile(t, noise(1, page)), newFile(t, noise(1, page))
	var turns []*writeTurn
	for i := range writersPerFile {
		turn, contended := w.enter(a.buffered)
		if contended != (i > 0) {
			t.Errorf("writer %d: contended %v", i, contended)
		}
		turns = append(turns, turn)
	}
	other, contended := w.enter(b.buffered)
	if contended {
		t.Error("another file's writers count")
	}
	w.leave(other)
	entered := make(chan struct{})
	go func() {
		turn, _ := w.enter(a.buffered)
		w.leave(turn)
		close(entered)
	}()
	w.leave(turns[0])
	<-entered
	for _, turn := range turns[1:] {
		w.leave(turn)
	}
	if len(w.files) != 0 {
		t.Errorf("%d files are kept", len(w.files))
	}
	if turn, contended := w.enter(-1); turn != nil || contended {
		t.Error("a descriptor that is closed has a turn")
	}
	w.leave(nil)
}

// TestWarmBytes: of a long write what fits into a core's own cache is warmed, of others all.
func TestWarmBytes(t *testing.T) {
	var w writeTurns
	w.warm(make([]byte, warmLen+1))
	w.warm(make([]byte, 1000))
	if got := w.warmed.Load(); got != warmLen+1000 {
		t.Errorf("%d bytes were warmed, want %d", got, warmLen+1000)
	}
}
