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
// their own, two at a time are in the kernel; the bytes are right, and nothing is kept.
func TestWritersTakeTurns(t *testing.T) {
	const callers, each = 4, 1 << 20
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
	if got := inside.Load(); got > 2 {
		t.Errorf("%d of %d callers are in the kernel, want 2", got, callers)
	}
	close(release)
	wg.Wait()
	if got := calls.Load(); got != callers {
		t.Errorf("%d writes of %d requests", got, callers)
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

// TestFilesDoNotWaitForEachOther: a write that does not end keeps no other file's
// writers.
func TestFilesDoNotWaitForEachOther(t *testing.T) {
	var w writeTurns
	a, b := newFile(t, noise(1, page)), newFile(t, noise(1, page))
	first, second := w.enter(a.buffered), w.enter(a.buffered)
	other := w.enter(b.buffered)
	w.leave(other)
	entered := make(chan struct{})
	go func() {
		w.leave(w.enter(a.buffered))
		close(entered)
	}()
	w.leave(first)
	<-entered
	w.leave(second)
	if len(w.files) != 0 {
		t.Errorf("%d files are kept", len(w.files))
	}
	if turn := w.enter(-1); turn != nil {
		t.Error("a descriptor that is closed has a turn")
	}
	w.leave(nil)
}
