package storage

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rateWindow is how many bytes make one observation of a rate: enough for dozens
	// of chunks, of all threads.
	rateWindow = 64 << 20
	// A measurement takes reads of at least measureLen, and is worth its window only if
	// the stream has so much left.
	measureLen  = 1 << 20
	measureLeft = 4 * rateWindow
)

// coldRates compare two ways to read what is not in the page cache of a device: around
// the cache, and by filling it.
type coldRates struct {
	direct, fill windowRate
	measured     atomic.Int64 // bytes whose reads around the cache have begun, to compare
}

// measure takes a read of n bytes into the window around the cache, until it has enough:
// the reads of sixteen threads are a window, and another one may be begun before any ends.
func (r *coldRates) measure(n int64) bool {
	return r.measuring() && r.measured.Add(n)-n < rateWindow
}

// measuring reports that one window was filled, and the reads of none around the cache
// have begun yet.
func (r *coldRates) measuring() bool {
	return r.measured.Load() < rateWindow && r.fill.get() > 0 && r.direct.get() == 0
}

// A windowRate is the rate of all threads together: bytes over the time in which at
// least one of them was reading. The rate of a single thread would say nothing about
// a disk that is busy with the requests of the others.
type windowRate struct {
	mu    sync.Mutex
	bytes int64         // in this window
	busy  time.Duration // in this window
	first time.Time     // the first read in this window ended
	upTo  time.Time     // busy was counted up to here
	rate  float64       // bytes per second; 0 before the first window has ended
}

func (w *windowRate) get() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rate
}

// observe records n bytes of a read that has just ended. A window around the cache ends
// when filling would have moved all of it: the storage has lost by then, and one reader
// with requests of 1 MiB would take ten times as long.
func (r *coldRates) observe(p Path, n int64, began, ended time.Time) {
	switch p {
	case Around:
		most := time.Duration(math.MaxInt64)
		if fill := r.fill.get(); fill > 0 {
			most = time.Duration(rateWindow / fill * float64(time.Second))
		}
		r.direct.add(n, began, ended, most)
	case Fill:
		r.fill.add(n, began, ended, math.MaxInt64)
	}
}

// add records n bytes of a read that has just ended. The window ends after rateWindow
// bytes, or when it has taken most. Reads that began together with the first one do not end
// it, for as many bytes may be on their way as are in the window.
func (w *windowRate) add(n int64, began, ended time.Time, most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first.IsZero() {
		w.first = ended
	}
	late := !began.Before(w.first)
	if began.Before(w.upTo) {
		began = w.upTo
	}
	if ended.After(began) {
		w.busy += ended.Sub(began)
		w.upTo = ended
	}
	if w.bytes += n; w.bytes < rateWindow && (w.busy < most || !late) || w.busy == 0 || w.bytes == 0 {
		return
	}
	now := float64(w.bytes) / w.busy.Seconds()
	if w.rate > 0 {
		// Two windows count: a virtual machine may run out of the memory that its host
		// has given it, and from then on filling takes four times as long.
		now = (w.rate + now) / 2
	}
	w.rate, w.bytes, w.busy, w.first = now, 0, 0, time.Time{}
}

var deviceRates sync.Map // of device numbers, to *coldRates

func ratesOf(dev string) *coldRates {
	if dev == "" {
		return new(coldRates)
	}
	r, _ := deviceRates.LoadOrStore(dev, new(coldRates))
	return r.(*coldRates)
}
