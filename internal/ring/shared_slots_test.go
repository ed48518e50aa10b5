package ring

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
)

// Requests that share slots answer for themselves: an error of the file is that
// of the request it happened to, and one of the GPU at most that of the requests
// in the same slot. A request without an error has all its bytes, and none has a
// neighbour's.
func TestSharedSlots(t *testing.T) {
	files, dev := &coldFiles{}, newOddGPU(openGPU(t))
	r := openRing(t, dev, Config{Budget: 16 << 20, Slot: 1 << 20, Workers: 2, sys: files})
	const room = 8 << 20
	b, data := newBuffer(t, dev.Device, room), noise(1, room)
	src, dst := newFile(t, data), newFile(t, make([]byte, room))
	rapid.Check(t, func(t *rapid.T) {
		write := rapid.Bool().Draw(t, "write")
		f := src
		if write {
			f = dst
		}
		reqs := drawShared(t, f, b, write, room)
		res := make([]Result, len(reqs))
		bad := rapid.IntRange(0, len(reqs)-1).Draw(t, "bad request")
		badAt := reqs[bad].Off + rapid.Int64Range(0, reqs[bad].Len-1).Draw(t, "bad byte")
		gpuFails := rapid.SampledFrom([]string{"", "", "copy", "record", "event"}).Draw(t, "GPU fails at")
		nth := rapid.Int32Range(1, 12).Draw(t, "nth")
		stop := rapid.Int32Range(0, 30).Draw(t, "cancel at call")
		if rapid.Bool().Draw(t, "is not cancelled") {
			stop = 0
		}
		if err := reset(b, f, write, data); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var calls, asked atomic.Int32
		files.set(func(c call) (int, error) {
			if calls.Add(1) == stop {
				cancel()
			}
			switch hit := c.off <= badAt && badAt < c.off+int64(c.n); {
			case c.verb == "reserve" || !hit:
				return whole, nil
			case down(c.off, 512) == down(badAt, 512):
				return 0, unix.EIO
			default:
				return int(down(badAt, 512) - c.off), nil
			}
		})
		dev.set(func(v string, _ uint64) error {
			if v == gpuFails && asked.Add(1) == nth {
				return gpu.ErrLaunchFailed
			}
			return nil
		})
		err := r.Run(ctx, reqs, res)
		files.set(nil)
		dev.set(nil)
		var failed []error
		for i := range reqs {
			checkShared(t, i, &reqs[i], &res[i], b, f, data)
			if e := res[i].Err; e != nil {
				failed = append(failed, e)
				if errors.Is(e, unix.EIO) && i != bad {
					t.Fatalf("request %d has the error of request %d: %v", i, bad, e)
				}
			}
		}
		if stop == 0 && gpuFails == "" && !(len(failed) == 1 && errors.Is(res[bad].Err, unix.EIO)) {
			t.Fatalf("request %d of %d is bad; failed: %v", bad, len(reqs), failed)
		}
		if (err == nil) != (len(failed) == 0) && !errors.Is(err, context.Canceled) {
			t.Fatalf("Run says %v, the requests %v", err, failed)
		}
		if s := r.copies.Load(); s != 0 {
			t.Fatalf("%d bytes are counted as in flight", s)
		}
	})
}

// drawShared draws requests of one file that lie apart in it, and in memory.
func drawShared(t *rapid.T, f *testFile, b *buffer, write bool, room int) []Request {
	var reqs []Request
	at := rapid.IntRange(0, 5000).Draw(t, "first")
	direct := -1
	if rapid.Bool().Draw(t, "direct") {
		direct = f.direct
	}
	for range rapid.IntRange(2, 12).Draw(t, "requests") {
		n := rapid.OneOf(rapid.IntRange(1, 3000), rapid.IntRange(66_000, 400_000), rapid.IntRange(900_000, 1_200_000)).Draw(t, "len")
		if at+n > room {
			break
		}
		reqs = append(reqs, Request{
			Write: write, Buffered: f.buffered, Direct: direct, Align: f.align,
			Off: int64(at), Addr: b.addr() + gpu.Addr(at), Len: int64(n),
		})
		// Whole pages between them, so that a page is one request's.
		at = int(up(int64(at+n), page)) + rapid.SampledFrom([]int{0, 1, 512, 4096, 10_000}).Draw(t, "gap")
	}
	return reqs
}

// blank is what the destination contains before a run.
const blank = 0x5a

func reset(b *buffer, f *testFile, write bool, data []byte) error {
	if !write {
		return b.dev.Fill(b.addr(), blank, 1, uint64(b.n))
	}
	return errors.Join(b.dev.CopyIn(b.addr(), data), writeAll(f.buffered, bytes.Repeat([]byte{blank}, len(data))))
}

// checkShared checks what a request guarantees, and that the bytes around it are
// as they were.
func checkShared(t *rapid.T, i int, q *Request, res *Result, b *buffer, f *testFile, data []byte) {
	t.Helper()
	got := make([]byte, q.Len)
	if q.Write {
		if _, err := unix.Pread(f.buffered, got, q.Off); err != nil {
			t.Fatal(err)
		}
	} else if err := b.dev.CopyOut(got, q.Addr); err != nil {
		t.Fatal(err)
	}
	want := data[q.Off : q.Off+q.Len]
	for k := range got {
		if got[k] != want[k] && (got[k] != blank || int64(k) < res.N) {
			t.Fatalf("request %d %+v, %+v: byte %d is %#x, want %#x", i, q, res, k, got[k], want[k])
		}
	}
	switch {
	case res.Err == nil && (res.N != q.Len || res.HostBytes != q.Len):
		t.Fatalf("request %d %+v: %+v and no error", i, q, res)
	case res.Err != nil && res.N == q.Len, res.HostBytes < res.N, res.DirectBytes > res.HostBytes:
		t.Fatalf("request %d %+v: %+v", i, q, res)
	}
}

// What the GPU says of a slot, it says of all requests in it: it is unknown whose
// bytes have arrived.
func TestSharedSlotFails(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	r := openRing(t, dev, Config{Budget: 16 << 20, Slot: 1 << 20, Workers: 1})
	const n = 200_000
	f, b := newFile(t, noise(1, 4*n)), newBuffer(t, dev.Device, 4*n)
	reqs, res := make([]Request, 4), make([]Result, 4)
	for _, verb := range []string{"record", "event"} {
		for _, write := range []bool{false, true} {
			for i := range reqs {
				reqs[i] = Request{Write: write, Buffered: f.buffered, Direct: -1, Off: int64(i * n), Addr: b.addr() + gpu.Addr(i*n), Len: n}
			}
			dev.set(func(v string, _ uint64) error {
				if v == verb {
					return gpu.ErrLaunchFailed
				}
				return nil
			})
			err := r.Run(context.Background(), reqs, res)
			dev.set(nil)
			for i := range res {
				if !errors.Is(err, gpu.ErrLaunchFailed) || !errors.Is(res[i].Err, gpu.ErrLaunchFailed) || res[i].N != 0 || res[i].HostBytes != 0 {
					t.Errorf("%s fails, write %v: request %d: %+v, %v", verb, write, i, res[i], err)
				}
			}
		}
	}
}
