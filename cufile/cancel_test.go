package cufile_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A countdown is a context that is cancelled when it has been looked at so many
// times: transfers look between their pieces, so it ends them in flight without
// a clock.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func cancelAfter(looks int64) *countdown {
	c := new(countdown)
	c.Context, c.cancel = context.WithCancel(context.Background())
	c.left.Store(looks)
	return c
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// After a cancelled read nothing touches the buffer any more, and after a
// cancelled write nothing touches the file.
func TestCancelLeavesNothingBehind(t *testing.T) {
	size := 24 << 20
	if testing.Short() {
		size = 8 << 20
	}
	f := newFixture(t, softConfig(), size)
	buf := f.buffer(uint64(size))
	want := bytes.Repeat([]byte{0x3C}, size)
	for _, id := range []route.ID{route.Ring, route.Host, route.Mapped} {
		h := f.by(id)
		under := false
		for looks := range int64(12) {
			r, err := h.ReadAt(cancelAfter(looks), buf.Span(), 0)
			if err == nil && looks > 0 {
				break // all of it was in flight
			}
			if !errors.Is(err, context.Canceled) || r.Bytes >= int64(size) {
				t.Fatalf("%v, cancelled at look %d: %v, %v", id, looks, &r, err)
			}
			under = under || r.Bytes > 0
			if err := f.dev.Fill(buf.Span().Base, 0x3C, 1, uint64(size)); err != nil {
				t.Fatal(err)
			}
			f.settled(func() []byte { return f.gpuBytes(buf.Span()) }, want)
		}
		if !under && id != route.Mapped { // which does not stop inside a window of 64 MiB
			t.Errorf("%v: no read was cancelled in flight", id)
		}
		h.Close()
	}
	f.cancelWrites(buf.Span())
}

func (f *fixture) cancelWrites(mem gpu.Span) {
	f.t.Helper()
	for _, id := range []route.ID{route.Ring, route.Host} {
		h := f.by(id)
		for looks := range int64(8) {
			r, err := h.WriteAt(cancelAfter(looks), mem, 0)
			if err == nil && looks > 0 {
				break
			}
			if !errors.Is(err, context.Canceled) || r.Bytes >= int64(mem.Len) {
				f.t.Fatalf("%v, cancelled at look %d: %v, %v", id, looks, &r, err)
			}
			want := bytes.Repeat([]byte{byte(looks)}, int(mem.Len))
			if err := os.WriteFile(f.path, want, 0o600); err != nil {
				f.t.Fatal(err)
			}
			f.settled(func() []byte { b, _ := os.ReadFile(f.path); return b }, want)
		}
		h.Close()
	}
}

// settled looks twice, with all work of the GPU in between.
func (f *fixture) settled(look func() []byte, want []byte) {
	f.t.Helper()
	for range 2 {
		if !bytes.Equal(look(), want) {
			f.t.Fatal("a cancelled transfer went on")
		}
		if err := f.dev.Synchronize(); err != nil {
			f.t.Fatal(err)
		}
	}
}
