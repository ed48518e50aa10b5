package ring

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// TestColdReaders: readers of one file that is not in the page cache, each with an open of
// its own, get it at the rate of the disk, once, whatever the size of their requests. The
// disk is a model, which needs several requests at a time.
func TestColdReaders(t *testing.T) {
	const size = 1 << 30
	for _, tt := range []struct {
		readers, threads int // of each request
		block            int64
	}{{1, 1, 1 << 20}, {8, 1, 1 << 20}, {8, 1, 256 << 10}, {4, 4, 16 << 20}, {1, 16, size}} {
		t.Run(fmt.Sprintf("%d x %d KiB", tt.readers, tt.block>>10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &modelDisk{folios: map[int64]time.Time{}}
				first := newReader(size)
				began := time.Now()
				disk.readAll(first, tt.readers, tt.threads, size, tt.block)
				part := float64(size) / time.Since(began).Seconds() / diskRate
				t.Logf("%.2f of the disk's rate, %.3f of the file from disk", part, float64(disk.bytes)/size)
				if part < 0.8 || disk.bytes > size+112<<20 { // what is compared is read twice
					t.Error("want 0.8 of the rate, and little more than the file")
				}
			})
		})
	}
}

// TestReadersDropTheCache: fio's jobs do so at the start of each lap.
func TestReadersDropTheCache(t *testing.T) {
	const size, laps = 1 << 30, 4
	synctest.Test(t, func(t *testing.T) {
		disk := &modelDisk{folios: map[int64]time.Time{}, laps: laps}
		first := newReader(size)
		began := time.Now()
		disk.readAll(first, 8, 1, size, 1<<20)
		part := laps * float64(size) / time.Since(began).Seconds() / diskRate
		t.Logf("%.2f of the disk's rate, %.3f of the laps from disk", part, float64(disk.bytes)/size/laps)
		if part < 0.75 || disk.bytes > laps*size*23/20 {
			t.Error("want 0.75 of the rate, and no more than 1.15 of the laps")
		}
	})
}

// TestOutrunReaders: where the first pass goes around the cache, readers of the same
// blocks do not read each from the disk for themselves.
func TestOutrunReaders(t *testing.T) {
	const size = 1 << 30
	synctest.Test(t, func(t *testing.T) {
		disk := &modelDisk{folios: map[int64]time.Time{}}
		first := newReader(size)
		for at := range int64(2) { // the first of each is only the beginning
			first.Observe(storage.Around, 192<<20, time.Unix(at, 0), time.Unix(at, 10<<20))
			first.Observe(storage.Fill, 192<<20, time.Unix(at, 0), time.Unix(at, 64<<20))
		}
		disk.readAll(first, 8, 1, size, 1<<20)
		if disk.bytes > size*23/20 {
			t.Errorf("the disk has read %.2f of the file", float64(disk.bytes)/size)
		}
	})
}

// TestBetterFirstPass: the first pass over a file is about as fast as the better of two, one
// that fills the page cache and one that goes around it. If filling has more than half of the
// disk's rate, the cache has the file afterwards. A machine whose host gives it memory slowly
// fills the cache at 0.6 of the rate of its disk, as an H200's did, or less
// (docs/performance.md).
func TestBetterFirstPass(t *testing.T) {
	const size = 4 << 30
	for _, tt := range []struct {
		threads  int // of each request
		block    int64
		fillRate float64
		ahead    int64 // folios that the kernel reads ahead
		want     float64
	}{
		{16, size, 0.35, 0, 0.84},
		{16, size, 0.35, 4, 0.84},
		{16, size, 0.7, 4, 0.66},
		{4, 16 << 20, 0.6, 0, 0.82},
		{1, 4 << 20, 0.6, 4, 0.92},
		{16, size, 0, 4, 0.92},
		{16, 128 << 20, 0, 0, 0.88},
		{4, 16 << 20, 0, 0, 0.88},
		{1, 4 << 20, 0, 0, 0.92},
	} {
		t.Run(fmt.Sprintf("%d threads, %d KiB, %.2f, %d", tt.threads, tt.block>>10, tt.fillRate, tt.ahead), func(t *testing.T) {
			rate := map[route.CacheMode]float64{}
			for _, mode := range []route.CacheMode{route.CacheAuto, route.CacheKeep, route.CacheAvoid} {
				synctest.Test(t, func(t *testing.T) {
					disk := &modelDisk{folios: map[int64]time.Time{}, fillRate: tt.fillRate * diskRate, mode: mode, size: size, ahead: tt.ahead}
					first := newReader(size)
					began := time.Now()
					disk.readAll(first, 1, tt.threads, size, tt.block)
					rate[mode] = float64(size) / time.Since(began).Seconds() / diskRate
					if part := disk.cached(); (tt.fillRate == 0 || tt.fillRate > 0.6) && mode == route.CacheAuto && part < 1 {
						t.Errorf("the cache has %.2f of the file", part)
					}
				})
			}
			part := rate[route.CacheAuto] / max(rate[route.CacheKeep], rate[route.CacheAvoid])
			t.Logf("%.2f of the disk's rate; filling %.2f, around %.2f: %.2f", rate[route.CacheAuto], rate[route.CacheKeep], rate[route.CacheAvoid], part)
			if part < tt.want {
				t.Errorf("want %.2f of the better one", tt.want)
			}
		})
	}
}

// TestManyFirstReaders: what the kernel reads ahead by itself does not keep callers that
// read parts of a file at the same time, as a load does, from going around the cache where
// filling it is slow. Where it is not, the cache has the file afterwards.
func TestManyFirstReaders(t *testing.T) {
	const size = 4 << 30
	for _, fillRate := range []float64{0.25, 0} {
		synctest.Test(t, func(t *testing.T) {
			disk := &modelDisk{folios: map[int64]time.Time{}, fillRate: fillRate * diskRate, size: size, ahead: 4}
			began := time.Now()
			disk.readParts(newReader(size), 8, 2, size)
			rate, cached := float64(size)/time.Since(began).Seconds()/diskRate, disk.cached()
			t.Logf("filling %.2f: %.2f of the disk's rate, the cache has %.2f of the file", fillRate, rate, cached)
			if rate < 0.7 {
				t.Error("want 0.7 of the rate")
			}
			if fillRate == 0 && cached < 1 {
				t.Error("want all of the file")
			}
		})
	}
}

// TestSecondPassFills: where the first pass goes around the cache, the second one fills it,
// also in another process, which knows neither the first pass nor the rates.
func TestSecondPassFills(t *testing.T) {
	const size = 4 << 30
	for _, tt := range []struct{ callers, threads int }{{1, 16}, {8, 2}, {1, 1}} {
		t.Run(fmt.Sprintf("%d x %d threads", tt.callers, tt.threads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &modelDisk{folios: map[int64]time.Time{}, fillRate: 0.1 * diskRate, size: size, ahead: 4}
				for pass, want := range []struct{ least, most float64 }{{0, 0.2}, {0.98, 1}} {
					disk.readParts(newReader(size), tt.callers, tt.threads, size)
					if got := disk.cached(); got < want.least || got > want.most {
						t.Errorf("after pass %d the cache has %.2f of the file", pass+1, got)
					}
				}
			})
		})
	}
}

// newReader returns the stream of a file that this process has not read yet, on a machine
// with memory enough.
func newReader(size int64) *storage.Stream {
	return storage.NewStream(func() (int64, error) { return size, nil }, func() int64 { return 1 << 40 })
}

const (
	diskRate     = 4e9
	diskLatency  = 2 * time.Millisecond
	modelCopies  = 5e9 // bytes per second that one thread copies
	modelFolio   = 2 << 20
	modelReading = 2 // folios that a fault reads
)

var modelMem = make([]byte, 4<<20) // which nothing is read into

// A modelDisk is a file on a disk with a rate and a latency, and its page cache.
type modelDisk struct {
	oddFiles
	mu     sync.Mutex
	free   time.Time           // when the disk has moved what it was asked for
	folios map[int64]time.Time // in the page cache, and when they can be read
	bytes  int64
	// fillRate is how fast the host gives memory for the page cache, in bytes per second;
	// 0 means at once.
	fillRate float64
	given    time.Time // when it has given what was asked for
	mode     route.CacheMode
	size     int64
	ahead    int64 // folios that the kernel reads ahead of every reader
	laps     int   // of each reader, which drops the cache before each, as fio does; 0: one
}

// cached is how much of the file is in the cache.
func (d *modelDisk) cached() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return float64(len(d.folios)) * modelFolio / float64(d.size)
}

// drop drops what has arrived.
func (d *modelDisk) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.folios, func(_ int64, ready time.Time) bool { return !ready.After(now) })
}

// readAll reads the file as so many callers at the same time, each request with so many
// threads.
func (d *modelDisk) readAll(first *storage.Stream, readers, threads int, size, block int64) {
	files := fileIO{sys: d, slot: int64(len(modelMem))}
	files.mappedReads.init(d, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 3 * time.Millisecond)
			cache := first.Reopened()
			cache.SetMode(d.mode, 0)
			for range max(1, d.laps) {
				d.drop()
				for off := int64(0); off < size; off += block {
					files.readRequest(Request{Buffered: 1, Direct: 2, Cache: cache, Off: off, Len: block}, threads)
				}
			}
			cache.Wait()
		})
	}
	all.Wait()
}

// readParts reads the file once as so many callers, each a part of it, with requests of
// 64 MiB and so many threads.
func (d *modelDisk) readParts(cache *storage.Stream, callers, threads int, size int64) {
	files := fileIO{sys: d, slot: int64(len(modelMem))}
	files.mappedReads.init(d, slog.New(slog.DiscardHandler))
	cache.SetMode(d.mode, 0)
	var all sync.WaitGroup
	for i := range int64(callers) {
		all.Go(func() {
			part := size / int64(callers)
			for off := i * part; off < (i+1)*part; off += 64 << 20 {
				files.readRequest(Request{Buffered: 1, Direct: 2, Cache: cache, Off: off, Len: 64 << 20}, threads)
			}
		})
	}
	all.Wait()
	cache.Wait()
}

func (f *fileIO) readRequest(q Request, threads int) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range threads {
		all.Go(func() {
			for at := next.Add(f.slot) - f.slot; at < q.Len; at = next.Add(f.slot) - f.slot {
				seg := segment{off: at, n: int(min(q.Len-at, f.slot))}
				began := time.Now()
				f.read(&q, &seg, modelMem)
				f.observe(&slot{batch: &batch{reqs: []Request{q}}, segments: []segment{seg}}, int64(seg.n), began, time.Now())
				q.Cache.Count(int64(seg.n))
			}
		})
	}
	all.Wait()
}

// submitLocked asks the disk for n bytes.
func (d *modelDisk) submitLocked(n int64) (ready time.Time) {
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(float64(n) / diskRate * 1e9))
	d.bytes += n
	return d.free.Add(diskLatency)
}

// fillLocked asks the disk for n bytes, in new memory.
func (d *modelDisk) fillLocked(n int64) (ready time.Time) {
	ready = d.submitLocked(n)
	if d.fillRate == 0 {
		return ready
	}
	if now := time.Now(); d.given.Before(now) {
		d.given = now
	}
	d.given = d.given.Add(time.Duration(float64(n) / d.fillRate * 1e9))
	if d.given.After(ready) {
		return d.given
	}
	return ready
}

// folio returns when a folio can be read. It and those behind it are asked for if they
// are not in the cache.
func (d *modelDisk) folio(at int64, reading int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.folios[at]; !there {
		for i := range int64(reading) {
			if i > 0 && d.size > 0 && (at+i)*modelFolio >= d.size {
				break // the end of the file
			}
			if _, there := d.folios[at+i]; !there {
				d.folios[at+i] = d.fillLocked(modelFolio)
			}
		}
	}
	return d.folios[at]
}

func (d *modelDisk) Residency(_ int, off, n int64) (r storage.Residency, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Pages = n / page
	for at := off; at < off+n; at += page {
		if _, there := d.folios[at/modelFolio]; there {
			r.Cached++
		}
	}
	return r, nil
}

func (d *modelDisk) Fetch(_ int, off, n int64) error {
	for i := off / modelFolio; i*modelFolio < off+n; i++ {
		time.Sleep(time.Until(d.folio(i, modelReading)))
	}
	return nil
}

func (d *modelDisk) WillNeed(_ int, off, n int64) error {
	for i := off / modelFolio; i*modelFolio < off+n; i++ {
		d.folio(i, 1)
	}
	return nil
}

func (d *modelDisk) Pread(fd int, p []byte, off int64) (int, error) {
	n := int64(len(p))
	if fd == 2 {
		d.mu.Lock()
		ready := d.submitLocked(n)
		d.mu.Unlock()
		time.Sleep(time.Until(ready))
		return len(p), nil
	}
	for i := off / modelFolio; i*modelFolio < off+n; i++ {
		time.Sleep(time.Until(d.folio(i, 1)))
		for next := i + 1; next <= i+d.ahead && next*modelFolio < d.size; next++ {
			d.folio(next, 1)
		}
	}
	time.Sleep(time.Duration(float64(n) / modelCopies * 1e9))
	return len(p), nil
}
