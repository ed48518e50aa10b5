package ring

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
)

// Random batches against a model, with interruptions, short calls, failures
// and cancellation thrown in. What a result says must be so.
func TestRandom(t *testing.T) {
	files := &coldFiles{}
	cfg := smallRing
	cfg.sys = files
	r := openRing(t, openGPU(t), cfg)
	const fileLen, memLen = 1 << 20, 1 << 20
	f := newFile(t, noise(1, fileLen))
	out := newFile(t, make([]byte, fileLen))
	b := newBuffer(t, r.dev, memLen)
	back := noise(2, memLen)
	rapid.Check(t, func(t *rapid.T) {
		reqs := drawReqs(t, f, out, b, fileLen, memLen)
		res := make([]Result, len(reqs))
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		after := rapid.Int32Range(1, 200).Draw(t, "cancel after")
		oddness := rapid.Int32Range(2, 40).Draw(t, "one odd call in")
		fails := rapid.Bool().Draw(t, "fails")
		var calls atomic.Int32
		files.set(func(c call) (int, error) {
			k := calls.Add(1)
			if k == after {
				cancel()
			}
			switch {
			case k%oddness == 0:
				return 0, unix.EINTR
			case k%oddness == 1 && c.n > 600:
				return c.n &^ 511 / 2, nil
			case fails && k%97 == 96:
				return 0, unix.EIO
			}
			return whole, nil
		})
		b.set(t, back)
		if err := writeAll(out.buffered, make([]byte, fileLen)); err != nil {
			t.Fatal(err)
		}
		err := r.Run(ctx, reqs, res)
		files.set(nil)
		checkRun(t, err, reqs, res, f.data, back, out.content(t), b)
	})
}

func writeAll(fd int, p []byte) error {
	_, err := unix.Pwrite(fd, p, 0)
	return err
}

// drawReqs draws requests whose destinations do not overlap. Reads go to the
// first half of the memory, writes come from the second.
func drawReqs(t *rapid.T, f, out *testFile, b *buffer, fileLen, memLen int) []Request {
	var reqs []Request
	memAt, fileAt := 0, 0
	for range rapid.IntRange(1, 40).Draw(t, "requests") {
		n := rapid.OneOf(rapid.IntRange(0, 5000), rapid.IntRange(0, 70_000), rapid.IntRange(100_000, 300_000)).Draw(t, "len")
		q := Request{Buffered: f.buffered, Direct: -1, Align: 512, Len: int64(n)}
		direct := rapid.Bool().Draw(t, "direct")
		if rapid.IntRange(0, 3).Draw(t, "write") == 0 {
			if fileAt+n > fileLen {
				continue
			}
			q.Write, q.Buffered, q.Off = true, out.buffered, int64(fileAt)
			q.Addr = b.addr() + gpu.Addr(memLen/2+rapid.IntRange(0, memLen/2-n).Draw(t, "from"))
			if direct {
				q.Direct = out.direct
			}
			fileAt += n + rapid.IntRange(0, 9000).Draw(t, "gap")
		} else {
			if memAt+n > memLen/2 {
				continue
			}
			q.Off = int64(rapid.IntRange(0, fileLen+1000).Draw(t, "off"))
			q.Addr = b.addr() + gpu.Addr(memAt)
			if direct {
				q.Direct = f.direct
			}
			memAt += n + rapid.IntRange(0, 10).Draw(t, "gap")
		}
		reqs = append(reqs, q)
	}
	return reqs
}

func checkRun(t *rapid.T, err error, reqs []Request, res []Result, file, mem, out []byte, b *buffer) {
	got := b.bytes(t)
	touched := make([]bool, len(got))
	var first error
	for i, q := range reqs {
		if res[i].Err != nil && first == nil {
			first = res[i].Err
		}
		at := int(q.Addr - b.addr())
		want := mem[at : at+int(q.Len)]
		have := out[min(int(q.Off), len(out)):min(int(q.Off+q.Len), len(out))]
		if !q.Write {
			want = file[min(int(q.Off), len(file)):min(int(q.Off+q.Len), len(file))]
			have = got[at : at+int(q.Len)]
			for k := range have {
				touched[at+k] = true
			}
		}
		switch {
		case res[i].Err == nil && res[i].N != int64(len(want)):
			t.Fatalf("request %d %+v: %d bytes and no error", i, q, res[i].N)
		case !bytes.Equal(have[:res[i].N], want[:res[i].N]):
			t.Fatalf("request %d %+v: wrong bytes among the first %d", i, q, res[i].N)
		case res[i].Err != nil && !errors.Is(res[i].Err, unix.EIO) && !errors.Is(res[i].Err, context.Canceled):
			t.Fatalf("request %d %+v: %v", i, q, res[i].Err)
		}
	}
	if err != nil && first == nil && !errors.Is(err, context.Canceled) || err == nil && first != nil {
		t.Fatalf("Run says %v, the first request %v", err, first)
	}
	for k := range got {
		if !touched[k] && got[k] != mem[k] {
			t.Fatalf("byte %d of the memory belongs to no read, but changed", k)
		}
	}
}

// Callers come and go, some give up; nothing grows.
func TestSoak(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	f := newFile(t, noise(1, 1<<20))
	buffers := make([]*buffer, 6)
	for i := range buffers {
		buffers[i] = newBuffer(t, r.dev, 1<<20)
	}
	round := func() {
		var wg sync.WaitGroup
		for c, b := range buffers {
			wg.Go(func() {
				for i := range 15 {
					ctx, cancel := context.WithCancel(context.Background())
					reqs := make([]Request, 1+i%3*20)
					n := []int{1000, 300_000}[(i+c)%2] / len(reqs)
					for k := range reqs {
						reqs[k] = Request{Buffered: f.buffered, Direct: -1, Off: int64(k) * 1000, Addr: b.addr() + gpu.Addr(k*n), Len: int64(n)}
					}
					if i%4 == 3 {
						go cancel()
					}
					err := r.Run(ctx, reqs, make([]Result, len(reqs)))
					cancel()
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse
	}
	for range 3 {
		round()
	}
	pinned, before := r.Pinned(), heap()
	for range 12 {
		round()
	}
	if r.Pinned() > smallRing.Budget || r.Pinned() < pinned {
		t.Errorf("%d bytes pinned at first, %d later", pinned, r.Pinned())
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("the heap grew from %d to %d", before, after)
	}
}
