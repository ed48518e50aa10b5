package ring

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/storage"
	"github.com/culvert-io/culvert/route"
)

// plainly is the stream of a file that was opened without O_DIRECT, on a machine with
// so much memory.
func (f *testFile) plainly(available int64) *storage.Stream {
	return storage.NewStream(func() (int64, error) { return int64(len(f.data)), nil }, func() int64 { return available })
}

// resident is how many bytes of a range the page cache has.
func (f *testFile) resident(t *testing.T, off, n int64) int64 {
	t.Helper()
	r, err := storage.PageCache(f.buffered, off, n)
	if err != nil {
		t.Fatal(err)
	}
	return r.Cached * page
}

func (f *testFile) read(cache *storage.Stream, off, n int64) Request {
	return Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Cache: cache, Off: off, Len: n}
}

// readInto runs a read into GPU memory of its own and checks the bytes.
func readInto(t *testing.T, r *Ring, f *testFile, q Request) Result {
	t.Helper()
	b := newBuffer(t, r.dev, int(q.Len))
	q.Addr = b.addr()
	res, err := run1(r, q)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.bytes(t), f.data[q.Off:q.Off+q.Len]) {
		t.Errorf("wrong bytes in a read of %d at %d", q.Len, q.Off)
	}
	c := &res.Cache
	if sum := c.Hit + c.Filled + c.Bypassed + c.Unasked; sum != q.Len {
		t.Errorf("read of %d bytes: %+v count %d", q.Len, *c, sum)
	}
	return res
}

// TestCacheStays: a file that was opened plainly and fits is in the page cache once
// read, and the second read finds it there.
func TestCacheStays(t *testing.T) {
	const n = 12<<20 + 5000
	f := coldFile(t, n)
	r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 3})
	cache := f.plainly(1 << 40)
	first := readInto(t, r, f, f.read(cache, 0, n))
	if first.Cache.Filled != n || first.DirectBytes != 0 {
		t.Errorf("the first read: %+v", first.Cache)
	}
	if got := f.resident(t, 0, n); got < n {
		t.Errorf("after it %d of %d bytes are cached", got, n)
	}
	second := readInto(t, r, f, f.read(cache, 0, n))
	if second.Cache != (route.CacheUse{Hit: n}) {
		t.Errorf("the second read: %+v", second.Cache)
	}
}

// TestCacheUnderPressure: with less memory than the file has, the same read leaves the
// page cache as it was.
func TestCacheUnderPressure(t *testing.T) {
	const n = 8 << 20
	f, other := coldFile(t, n), newFile(t, noise(9, 1<<20))
	r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 3})
	res := readInto(t, r, f, f.read(f.plainly(n), 0, n))
	if res.Cache != (route.CacheUse{Bypassed: n, Why: storage.TooLarge}) {
		t.Errorf("%+v", res.Cache)
	}
	if got := f.resident(t, 0, n); got > 0 {
		t.Errorf("%d bytes are cached", got)
	}
	if got := other.resident(t, 0, 1<<20); got != 1<<20 {
		t.Errorf("%d of %d bytes of another file are still cached", got, 1<<20)
	}
}

// TestCacheUnderGroupLimit: what the files of a control group say decides what a read
// leaves in the page cache. The machine has room for all of it.
func TestCacheUnderGroupLimit(t *testing.T) {
	const n = 8 << 20
	v2 := func(limit, current, file int64) map[string]string {
		return map[string]string{
			"proc/self/cgroup":             "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max":   fmt.Sprintln(limit),
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": fmt.Sprintln(current),
			"sys/fs/cgroup/a/memory.stat": fmt.Sprintf("anon %d\ninactive_file %d\nactive_file 0\n", current-file, file),
		}
	}
	v1 := func(limit, usage int64) map[string]string {
		return map[string]string{
			"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": fmt.Sprintln(limit),
			"sys/fs/cgroup/memory/a/memory.usage_in_bytes": fmt.Sprintln(usage),
		}
	}
	for name, tt := range map[string]struct {
		group map[string]string
		fits  bool
	}{
		"no limit":                              {nil, true},
		"version 2, room":                       {v2(64<<20, 16<<20, 0), true},
		"version 2, too small":                  {v2(8<<20, 0, 0), false},
		"version 2, used by processes":          {v2(64<<20, 60<<20, 0), false},
		"version 2, used by files, which leave": {v2(64<<20, 60<<20, 50<<20), true},
		"version 1, room":                       {v1(64<<20, 16<<20), true},
		"version 1, too small":                  {v1(64<<20, 60<<20), false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemAvailable: 1000000000 kB\n")}}
			for path, text := range tt.group {
				root[path] = &fstest.MapFile{Data: []byte(text)}
			}
			f := coldFile(t, n)
			cache := storage.NewStream(func() (int64, error) { return n, nil }, func() int64 { return storage.Available(root) })
			r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 3})
			res := readInto(t, r, f, f.read(cache, 0, n))
			want := int64(0)
			if tt.fits {
				want = n
			}
			if got := f.resident(t, 0, n); got != want {
				t.Errorf("%d bytes are cached afterwards, want %d: %+v", got, want, res.Cache)
			}
			if bypassed := res.Cache.Bypassed == n && res.Cache.Why == storage.TooLarge; bypassed == tt.fits {
				t.Errorf("the receipt says %+v", res.Cache)
			}
		})
	}
}

// TestOpenedDirectFillsNothing: whatever its size, alone or in a batch, a read of a
// file opened with O_DIRECT leaves no trace; what is cached it takes from there.
func TestOpenedDirectFillsNothing(t *testing.T) {
	const n = 4 << 20
	f := coldFile(t, n)
	r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 3})
	for _, q := range []struct{ off, n int64 }{{0, n}, {8192, 4096}, {5000, 100}, {4095, 2}, {1 << 20, 64 << 10}, {n - 10, 10}, {77, 3 << 20}} {
		res := readInto(t, r, f, f.read(nil, q.off, q.n))
		if res.Cache != (route.CacheUse{Bypassed: q.n, Why: storage.OpenedDirect}) {
			t.Errorf("%d bytes at %d: %+v", q.n, q.off, res.Cache)
		}
	}
	const each = 3000
	b := newBuffer(t, r.dev, 100*each)
	var reqs []Request
	for i := range int64(100) {
		q := f.read(nil, i*40_001, each)
		q.Addr = b.addr() + gpu.Addr(i*each)
		reqs = append(reqs, q)
	}
	res := make([]Result, len(reqs))
	if err := r.Run(t.Context(), reqs, res); err != nil {
		t.Fatal(err)
	}
	for i, got := range slices.Collect(slices.Chunk(b.bytes(t), each)) {
		if at := i * 40_001; !bytes.Equal(got, f.data[at:at+each]) {
			t.Fatalf("wrong bytes in request %d of a batch", i)
		}
		if res[i].Cache.Bypassed != each {
			t.Fatalf("request %d of a batch: %+v", i, res[i].Cache)
		}
	}
	if got := f.resident(t, 0, n); got > 0 {
		t.Errorf("%d bytes are cached", got)
	}
	readInto(t, r, f, f.read(f.plainly(1<<40), 0, n))
	for _, size := range []int64{n, 4096, 10} {
		if res := readInto(t, r, f, f.read(nil, 0, size)); res.Cache != (route.CacheUse{Hit: size}) {
			t.Errorf("%d bytes that are cached: %+v", size, res.Cache)
		}
	}
}

// TestCacheProperty runs reads of all sizes and modes over one file and checks after
// each that the page cache has what it must and no more.
func TestCacheProperty(t *testing.T) {
	const n = 6<<20 + 777
	f := coldFile(t, n)
	r := openRing(t, openGPU(t), Config{Slot: 256 << 10, Workers: 3})
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 120 {
		if i%20 == 0 {
			f.cool(t)
		}
		size := int64(1) << rnd.IntN(22)
		size = 1 + rnd.Int64N(size)
		off := rnd.Int64N(n - size)
		before := f.resident(t, 0, n)
		mode, room := route.CacheMode(rnd.IntN(3)), int64(1)<<40
		if rnd.IntN(4) == 0 {
			room = n
		}
		cache := f.plainly(room)
		cache.SetMode(mode, 0)
		fills := mode == route.CacheKeep || mode == route.CacheAuto && room > n || mode == route.CacheAuto && size <= smallLen
		if rnd.IntN(3) == 0 {
			cache, fills = nil, false
		}
		res := readInto(t, r, f, f.read(cache, off, size))
		after := f.resident(t, 0, n)
		if !fills && after > before { // readahead of an earlier read may have ended meanwhile
			f.cool(t)
			before = f.resident(t, 0, n)
			res = readInto(t, r, f, f.read(cache, off, size))
			after = f.resident(t, 0, n)
		}
		if !fills && after > before {
			t.Fatalf("read %d, %v, %d bytes at %d: the page cache grew by %d bytes, %+v", i, mode, size, off, after-before, res.Cache)
		}
		if first := off &^ (page - 1); fills && f.resident(t, off, size) < (off+size+page-1)&^(page-1)-first {
			t.Fatalf("read %d, %v, %d bytes at %d are not cached: %+v", i, mode, size, off, res.Cache)
		}
	}
}

// TestFirstPass reads a file of 2 GiB once, chunk by chunk, from storage with known
// rates. It changes over to O_DIRECT if filling the cache becomes slow on the way, and
// otherwise leaves all of the file in the cache. The kernel reads ahead by itself.
func TestFirstPass(t *testing.T) {
	const size, chunk, ahead = 2 << 30, 4 << 20, 8 << 20
	for _, tt := range []struct {
		name         string
		direct, fill float64 // bytes per second
		slowFrom     int64   // of the file, from which filling takes six times as long
		atMost       int64   // bytes that may fill the cache
		parts        int64   // of the file that are read at the same time
	}{
		{"filling is as fast", 4e9, 4e9, size, size, 1},
		{"filling two parts is as fast", 4e9, 4e9, size, size, 2},
		{"filling is slower by less than the spread", 4e9, 3.6e9, size, size, 1},
		{"filling is slow", 4e9, 1e9, size, size / 8, 1},
		{"filling becomes slow", 4e9, 4e9, size / 4, size / 2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &modelFiles{cached: make([]bool, size/chunk)}
				files := fileIO{sys: disk, slot: chunk}
				files.mappedReads.init(disk, slog.New(slog.DiscardHandler))
				cache := storage.NewStream(func() (int64, error) { return size, nil }, func() int64 { return 1 << 40 })
				cache.SetMode(route.CacheAuto, size)
				q := Request{Buffered: 1, Direct: 2, Cache: cache, Len: size}
				around := int64(0)
				for i := range int64(size / chunk) {
					off := i%tt.parts*(size/tt.parts) + i/tt.parts*chunk
					seg := segment{off: off, n: chunk}
					began, rate, n := time.Now(), tt.direct, int64(chunk)
					files.choose(&q, &seg)
					if seg.path == storage.Around {
						around += chunk
					} else {
						disk.load(off, chunk+ahead)
						if rate, n = tt.fill, seg.lacked; off >= tt.slowFrom {
							rate /= 6
						}
					}
					time.Sleep(time.Duration(float64(n) / rate * 1e9))
					files.observe(&slot{batch: &batch{reqs: []Request{q}}, segments: []segment{seg}}, chunk, began, time.Now())
					cache.Count(chunk)
				}
				if filled := size - around; filled > tt.atMost {
					t.Errorf("%d MiB filled the cache, want at most %d", filled>>20, tt.atMost>>20)
				}
				if missing := disk.missing(); tt.atMost == size && missing > 0 {
					t.Errorf("%d chunks are not in the cache afterwards", missing)
				}
			})
		})
	}
}

// modelFiles are a file whose page cache is a model.
type modelFiles struct {
	oddFiles
	cached []bool // by chunks of 4 MiB
}

func (m *modelFiles) load(off, n int64) {
	for i := off >> 22; i < (off+n)>>22 && i < int64(len(m.cached)); i++ {
		m.cached[i] = true
	}
}

func (m *modelFiles) missing() (n int) {
	for _, there := range m.cached {
		if !there {
			n++
		}
	}
	return n
}

func (m *modelFiles) Residency(_ int, off, n int64) (storage.Residency, error) {
	r := storage.Residency{Pages: n / page}
	for i := off >> 22; i < (off+n)>>22; i++ {
		if m.cached[i] {
			r.Cached += 4 << 20 / page
		}
	}
	return r, nil
}

func (m *modelFiles) Fetch(_ int, off, n int64) error { m.load(off, n); return nil }

// WillNeed is called for pieces of a chunk, all of which follow.
func (m *modelFiles) WillNeed(_ int, off, _ int64) error { m.load(off&^(4<<20-1), 4<<20); return nil }

// TestColdIsFetched: what a large cold read fills the cache with is fetched, in large
// folios; where that is not possible the kernel is told.
func TestColdIsFetched(t *testing.T) {
	const n = 16 << 20
	for _, refuse := range []error{nil, unix.EINVAL} {
		f := coldFile(t, n)
		files := &askedFiles{refuse: refuse}
		r := openRing(t, openGPU(t), Config{Slot: 1 << 20, Workers: 3, sys: files})
		readInto(t, r, f, f.read(f.plainly(1<<40), 0, n))
		if got := files.fetched.Load(); got < n/2 {
			t.Errorf("%d of %d bytes were fetched", got, n)
		}
		// Of what a thread that comes late finds in front, the kernel is told anyway.
		if got := files.bytes.Load(); refuse != nil && got < n/2 {
			t.Errorf("fetch %v: the kernel was told of %d bytes", refuse, got)
		}
	}
}

// askedFiles counts what the kernel is asked to read into the page cache.
type askedFiles struct {
	oddFiles
	refuse         error // of Fetch
	bytes, fetched atomic.Int64
}

func (a *askedFiles) Fetch(fd int, off, n int64) error {
	a.fetched.Add(n)
	if a.refuse != nil {
		return a.refuse
	}
	return a.oddFiles.Fetch(fd, off, n)
}

func (a *askedFiles) WillNeed(fd int, off, n int64) error {
	a.bytes.Add(n)
	return a.oddFiles.WillNeed(fd, off, n)
}
