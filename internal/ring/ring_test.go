package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
)

// sizes around every boundary that a request can meet.
func sizes(slot int) []int {
	return []int{1, 511, 4096, 65536, smallLen, smallLen + 1, slot - 1, slot, slot + 1, 3*slot + 17, 20*slot - 5}
}

func TestRead(t *testing.T) {
	dev := openGPU(t)
	f := newFile(t, noise(1, 2<<20))
	for _, cfg := range []Config{smallRing, {}} {
		r := openRing(t, dev, cfg)
		for _, direct := range []bool{false, true} {
			if direct && f.direct < 0 {
				t.Log("the file system has no O_DIRECT: only buffered reads are tested")
				continue
			}
			for _, off := range []int64{0, 1, 4096, 5000, 1<<20 + 512} {
				for _, n := range sizes(64 << 10) {
					name := fmt.Sprintf("slot=%d/direct=%v/off=%d/len=%d", r.sizing.slot, direct, off, n)
					q := Request{Buffered: f.buffered, Direct: -1, Off: off, Len: int64(n)}
					if direct {
						q.Direct, q.Align = f.direct, f.align
						f.cool(t)
					}
					testRead(t, name, r, f, q)
				}
			}
		}
	}
}

func testRead(t *testing.T, name string, r *Ring, f *testFile, q Request) {
	t.Helper()
	b := newBuffer(t, r.dev, int(q.Len))
	q.Addr = b.addr()
	res, err := run1(r, q)
	want := f.data[min(q.Off, int64(len(f.data))):min(q.Off+q.Len, int64(len(f.data)))]
	if err != nil || res.Err != nil || res.N != int64(len(want)) {
		t.Fatalf("%s: %+v, %v, want %d bytes", name, res, err, len(want))
	}
	if got := b.bytes(t)[:len(want)]; !bytes.Equal(got, want) {
		t.Fatalf("%s: wrong bytes", name)
	}
	if res.HostBytes != res.N {
		t.Errorf("%s: %d bytes through host memory, want %d", name, res.HostBytes, res.N)
	}
	if q.Direct >= 0 && res.N > smallLen && res.DirectBytes == 0 {
		t.Errorf("%s: nothing was read by O_DIRECT: %+v", name, res)
	}
}

// A warm file is read through the page cache even where O_DIRECT is offered.
func TestWarm(t *testing.T) {
	f := newFile(t, noise(1, 4<<20))
	if f.direct < 0 {
		t.Skip("needs a file system with O_DIRECT")
	}
	r := openRing(t, openGPU(t), Config{})
	b := newBuffer(t, r.dev, 4<<20)
	q := Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Addr: b.addr(), Len: 4 << 20}
	res, err := run1(r, q)
	if err != nil || res.DirectBytes != 0 {
		t.Errorf("dirty: %+v, %v", res, err)
	}
	if err := unix.Fdatasync(f.buffered); err != nil {
		t.Fatal(err)
	}
	res, err = run1(r, q)
	if err != nil || res.DirectBytes != 0 {
		t.Errorf("warm: %+v, %v", res, err)
	}
	f.cool(t)
	res, err = run1(r, q)
	if err != nil || res.DirectBytes != 4<<20 {
		t.Errorf("cold: %+v, %v", res, err)
	}
}

func TestWrite(t *testing.T) {
	dev := openGPU(t)
	for _, cfg := range []Config{smallRing, {}} {
		r := openRing(t, dev, cfg)
		for _, direct := range []bool{false, true} {
			for _, off := range []int64{0, 1, 4096, 5000, 1<<20 + 512} {
				for _, n := range sizes(64 << 10) {
					name := fmt.Sprintf("slot=%d/direct=%v/off=%d/len=%d", r.sizing.slot, direct, off, n)
					testWrite(t, name, r, direct, off, n)
				}
			}
		}
	}
}

func testWrite(t *testing.T, name string, r *Ring, direct bool, off int64, n int) {
	t.Helper()
	f := newFile(t, noise(2, 100_000))
	b := newBuffer(t, r.dev, n)
	data := noise(3, n)
	b.set(t, data)
	q := Request{Write: true, Buffered: f.buffered, Direct: -1, Off: off, Addr: b.addr(), Len: int64(n)}
	if direct {
		if f.direct < 0 {
			return
		}
		q.Direct, q.Align = f.direct, f.align
	}
	res, err := run1(r, q)
	if err != nil || res.N != int64(n) {
		t.Fatalf("%s: %+v, %v", name, res, err)
	}
	want := make([]byte, max(len(f.data), int(off)+n))
	copy(want, f.data)
	copy(want[off:], data)
	if got := f.content(t); !bytes.Equal(got, want) {
		t.Fatalf("%s: wrong bytes in the file (%d, want %d)", name, len(got), len(want))
	}
	if aligned := down(off+int64(n), page) - up(off, page); direct && res.DirectBytes != max(aligned, 0) {
		t.Errorf("%s: %d bytes by O_DIRECT, want %d", name, res.DirectBytes, aligned)
	}
}

// A batch of all sorts, in one call.
func TestBatch(t *testing.T) {
	for _, kernels := range []bool{true, false} {
		dev := newOddGPU(openGPU(t))
		if !kernels {
			dev.set(func(verb string, _ uint64) error {
				if verb == "load" {
					return gpu.ErrInvalidPTX
				}
				return nil
			})
		}
		r := openRing(t, dev, smallRing)
		f := newFile(t, noise(4, 4<<20))
		out := newFile(t, nil)
		b := newBuffer(t, dev, 8<<20)
		src := newBuffer(t, dev, 1<<20)
		src.set(t, noise(5, 1<<20))
		want := bytes.Repeat([]byte{canary}, 8<<20)
		wantOut := []byte{}
		var reqs []Request
		at := 0
		for i := range 700 {
			n := []int{4096, 1, 16 << 10, 300, 0, 4097}[i%6]
			if i%97 == 50 {
				n = 200_000
			}
			off := (i * 7919 * 13) % (4<<20 - n)
			reqs = append(reqs, Request{Buffered: f.buffered, Direct: f.direct, Align: f.align, Off: int64(off), Addr: b.addr() + gpu.Addr(at), Len: int64(n)})
			copy(want[at:], f.data[off:off+n])
			at += n + i%3
			if i%5 == 0 {
				n := 100 + i
				reqs = append(reqs, Request{Write: true, Buffered: out.buffered, Direct: -1, Off: int64(len(wantOut)), Addr: src.addr() + gpu.Addr(i), Len: int64(n)})
				wantOut = append(wantOut, noise(5, 1<<20)[i:i+n]...)
			}
		}
		res := make([]Result, len(reqs))
		if err := r.Run(context.Background(), reqs, res); err != nil {
			t.Fatal(err)
		}
		for i, q := range reqs {
			if res[i].N != q.Len || res[i].Err != nil {
				t.Errorf("request %d: %+v", i, res[i])
			}
		}
		if !bytes.Equal(b.bytes(t), want) {
			t.Errorf("kernels %v: wrong bytes on the GPU", kernels)
		}
		if !bytes.Equal(out.content(t), wantOut) {
			t.Errorf("kernels %v: wrong bytes in the file", kernels)
		}
	}
}

// A batch that runs over the end of the file comes back short, request by
// request.
func TestBatchEnd(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	f, b := newFile(t, noise(6, 10_500)), newBuffer(t, r.dev, 40*1000)
	reqs, res := make([]Request, 40), make([]Result, 40)
	for i := range reqs {
		reqs[i] = Request{Buffered: f.buffered, Direct: -1, Off: int64(i) * 500, Addr: b.addr() + gpu.Addr(i*1000), Len: 1000}
	}
	if err := r.Run(context.Background(), reqs, res); err != nil {
		t.Fatal(err)
	}
	got := b.bytes(t)
	for i := range reqs {
		want := f.data[min(i*500, len(f.data)):min(i*500+1000, len(f.data))]
		if res[i].N != int64(len(want)) || !bytes.Equal(got[i*1000:i*1000+len(want)], want) {
			t.Errorf("request %d: %+v, want %d bytes", i, res[i], len(want))
		}
	}
}

// Requests of a batch fail one by one.
func TestBatchErrors(t *testing.T) {
	r := openRing(t, openGPU(t), smallRing)
	f := newFile(t, noise(6, 1<<20))
	b := newBuffer(t, r.dev, 1<<20)
	good := Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: 1000}
	with := func(change func(q *Request)) Request {
		q := good
		change(&q)
		return q
	}
	tests := []struct {
		name string
		q    Request
		want error
	}{
		{"good", good, nil},
		{"no descriptor", with(func(q *Request) { q.Buffered = -1 }), unix.EBADF},
		{"closed descriptor", with(func(q *Request) { q.Buffered = 1 << 20 }), unix.EBADF},
		{"negative length", with(func(q *Request) { q.Len = -1 }), unix.EINVAL},
		{"negative offset", with(func(q *Request) { q.Off = -5 }), unix.EINVAL},
		{"odd alignment", with(func(q *Request) { q.Align = 1000 }), unix.EINVAL},
		{"huge alignment", with(func(q *Request) { q.Align = 1 << 20 }), unix.EINVAL},
		{"offset overflow", with(func(q *Request) { q.Off = 1<<63 - 10 }), unix.EINVAL},
		{"address overflow", with(func(q *Request) { q.Addr = ^gpu.Addr(0) - 5 }), unix.EINVAL},
		{"no such memory", with(func(q *Request) { q.Addr = 1 << 62 }), gpu.ErrInvalidValue},
		{"good at the end", with(func(q *Request) { q.Off = 1<<20 - 10 }), nil},
	}
	reqs, res := make([]Request, len(tests)), make([]Result, len(tests))
	for i, tt := range tests {
		reqs[i] = tt.q
		one, err := run1(r, tt.q)
		if !errors.Is(err, tt.want) || !errors.Is(one.Err, tt.want) {
			t.Errorf("%s alone: %v, want %v", tt.name, err, tt.want)
		}
	}
	err := r.Run(context.Background(), reqs, res)
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("batch: %v, want the first error", err)
	}
	for i, tt := range tests {
		if !errors.Is(res[i].Err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, res[i].Err, tt.want)
		}
	}
	if res[0].N != 1000 || res[len(res)-1].N != 10 {
		t.Errorf("good requests beside bad ones: %+v, %+v", res[0], res[len(res)-1])
	}
	if err := r.Run(context.Background(), reqs, res[:1]); err == nil {
		t.Error("no room for results, but no error")
	}
	if err := r.Run(context.Background(), nil, nil); err != nil {
		t.Errorf("empty batch: %v", err)
	}
}

func TestClose(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	r, err := New(dev, smallRing)
	if err != nil {
		t.Fatal(err)
	}
	f := newFile(t, noise(1, 1<<20))
	b := newBuffer(t, dev, 1<<20)
	for _, n := range []int64{100, 1 << 20} {
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, r, func() bool { return r.sched.asleep == r.sched.workers })
	if got := int64(dev.pinned()); got != r.Pinned() || got == 0 {
		t.Errorf("%d bytes pinned, Pinned says %d", got, r.Pinned())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := dev.pinned(); got != 0 {
		t.Errorf("%d bytes are still pinned", got)
	}
	if err := r.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	for _, n := range []int64{100, 1 << 20} {
		if _, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n}); !errors.Is(err, ErrClosed) {
			t.Errorf("Run of %d bytes after Close: %v", n, err)
		}
	}
}

// Close waits for what is in flight, small or large.
func TestCloseWaits(t *testing.T) {
	for _, n := range []int64{1000, 1 << 20} {
		files := &oddFiles{}
		cfg := smallRing
		cfg.sys = files
		r, err := New(openGPU(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		f, b := newFile(t, noise(1, int(n))), newBuffer(t, r.dev, int(n))
		inside, goOn := make(chan struct{}), make(chan struct{})
		var calls atomic.Int32
		files.set(func(call) (int, error) {
			if calls.Add(1) == 1 {
				close(inside)
				<-goOn
			}
			return whole, nil
		})
		ran, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := run1(r, Request{Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: n})
			ran <- err
		}()
		<-inside
		go func() { closed <- r.Close() }()
		waitFor(t, r, func() bool { return r.sched.closed })
		select {
		case <-closed:
			t.Fatalf("Close returned while %d bytes were being read", n)
		default:
		}
		close(goOn)
		if err := <-ran; err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if !bytes.Equal(b.bytes(t), f.data) {
			t.Errorf("%d bytes: wrong bytes", n)
		}
	}
}

// Memory that cannot be pinned is an error in New that names the limit, and
// later on only means fewer pipelines.
func TestBudget(t *testing.T) {
	dev := newOddGPU(openGPU(t))
	if _, err := New(dev, Config{Budget: 100 << 10}); err == nil || !strings.Contains(err.Error(), "102400") {
		t.Errorf("a budget too small: %v, want an error that names it", err)
	}
	refuse := func(from int32) {
		var pins atomic.Int32
		dev.set(func(verb string, n uint64) error {
			if verb == "register" || verb == "alloc host" && pins.Add(1) >= from {
				return gpu.Fail(verb, gpu.ErrOutOfMemory, "")
			}
			return nil
		})
	}
	refuse(1)
	if _, err := New(dev, Config{}); !errors.Is(err, gpu.ErrOutOfMemory) || !strings.Contains(err.Error(), fmt.Sprint(DefaultBudget)) {
		t.Errorf("nothing can be pinned: %v, want an error that names the budget", err)
	}
	if n := dev.pinned(); n != 0 {
		t.Errorf("%d bytes are still pinned", n)
	}
	f := newFile(t, noise(1, 4<<20))
	b := newBuffer(t, dev, 4<<20)
	q := Request{Write: true, Buffered: f.buffered, Direct: -1, Addr: b.addr(), Len: 4 << 20} // writes of the same bytes may overlap
	b.set(t, f.data)
	for from := int32(2); from <= 3; from++ {
		refuse(from)
		r := openRing(t, dev, smallRing)
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() {
				_, err := run1(r, q)
				errs <- err
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Fatalf("with %d slabs: %v", from-1, err)
			}
		}
		if !bytes.Equal(f.content(t), f.data) {
			t.Error("wrong bytes")
		}
	}
	dev.set(nil)
	r := openRing(t, dev, Config{Budget: 3 << 20, Workers: 64})
	for _, n := range []int64{1000, 4 << 20} {
		q.Len = n
		if _, err := run1(r, q); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.pool.alloc(3 << 20); err == nil || !strings.Contains(err.Error(), "of 3145728 bytes") {
		t.Errorf("over the budget: %v", err)
	}
	if r.Pinned() > 3<<20 {
		t.Errorf("%d bytes pinned of at most %d", r.Pinned(), 3<<20)
	}
}
