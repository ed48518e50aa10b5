// Package phase prints how long the steps of a load take and when they begin. Some of
// them run at the same time, so durations alone do not explain the time of the whole.
//
// It prints nothing unless it was told to, by [To] or CULVERT_LOG=phases.
package phase

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/culvert-io/culvert/internal/env"
)

// A Log prints phases, one line each, when they end.
type Log struct {
	mu    sync.Mutex
	to    io.Writer
	start time.Time // of the first phase
	now   func() time.Time
}

// NewLog returns a Log that prints to w.
func NewLog(w io.Writer) *Log { return &Log{to: w, now: time.Now} }

var (
	mu     sync.Mutex
	common *Log // nil prints nothing
	asked  = sync.OnceFunc(func() {
		if env.Get("CULVERT_LOG") == "phases" {
			To(os.Stderr)
		}
	})
)

// To prints all phases of the process to w from now on; nil ends that.
func To(w io.Writer) {
	mu.Lock()
	defer mu.Unlock()
	common = nil
	if w != nil {
		common = NewLog(w)
	}
}

// Begin begins a phase of the process and returns the function that ends it.
func Begin(name string) (end func()) {
	asked()
	mu.Lock()
	l := common
	mu.Unlock()
	return l.Begin(name)
}

// Begin begins a phase. A nil Log prints nothing.
func (l *Log) Begin(name string) (end func()) {
	if l == nil {
		return func() {}
	}
	began := l.now()
	l.mu.Lock()
	if l.start.IsZero() {
		l.start = began
	}
	at := began.Sub(l.start)
	l.mu.Unlock()
	return func() {
		took := l.now().Sub(began)
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintf(l.to, "phase %s begin=%s took=%s\n", name, round(at), round(took))
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
