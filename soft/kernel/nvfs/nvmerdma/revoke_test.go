package nvmerdma_test

import (
	"bytes"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/soft"
)

var revokes = flag.Int("revokes", 120, "sequences of TestRevokes")

// A revocation frees a buffer while a transfer passes a point, for the nth time, and fills
// what is allocated in its place.
type revocation struct {
	*rig
	addr  gpu.Addr
	begun atomic.Bool
	done  chan error
}

const revokeSize = 256 << 10 // two commands

// begin frees the memory, and returns when the free callback has begun: it waits for the
// transfer.
func (v *revocation) begin() {
	if !v.begun.CompareAndSwap(false, true) {
		return
	}
	gate := v.points.Stop("nvfs.callback")
	go func() {
		err := v.gpu.Free(v.addr)
		if err == nil {
			v.addr, err = v.gpu.Alloc(gpu.KindDevice, revokeSize, 0)
		}
		if err == nil {
			err = v.gpu.Fill(v.addr, 0x11, 1, revokeSize)
		}
		v.done <- err
	}()
	<-gate.Arrived()
	gate.Open()
}

// Memory that is freed at any point of a transfer: the transfer ends, with all bytes or EIO;
// no device touches what was freed, or its pins; the file has old or new bytes in each block.
// The places and the requests follow the seed.
func TestRevokes(t *testing.T) {
	points := []string{"nvfs.io", "nvfs.chunk", "nvmerdma.map", "nvmerdma.send", "nvmerdma.done", "nvfs.io.end"}
	r := newRig(t, soft.Config{Callback: true, Scatter: true, Seed: 5})
	r.read()
	rng := rand.New(rand.NewPCG(*seed, 11))
	struck := map[string]int{}
	for i := range *revokes {
		v := &revocation{rig: r, done: make(chan error, 1)}
		var err error
		v.addr, err = r.gpu.Alloc(gpu.KindDevice, revokeSize, 0)
		r.check(err)
		r.check(r.gpu.Fill(v.addr, 0xee, 1, revokeSize))
		b, err := r.client.Register(client.Config{Addr: uint64(v.addr), Size: revokeSize, Zero: func(a, n uint64) error {
			return r.gpu.Fill(gpu.Addr(a), 0, 1, n)
		}})
		r.check(err)
		point, nth, write := points[rng.IntN(len(points))], rng.IntN(2), rng.IntN(2) == 0
		if strings.HasPrefix(point, "nvfs.") {
			nth = 0 // a request passes it once
		}
		var passed atomic.Int32
		r.points.Hook(func(name string, _ uint64) {
			if name == point && int(passed.Add(1)) == nth+1 {
				struck[point]++ // once: the hook stops there
				v.begin()
			}
		})
		n, err := move(b, r.file, write)
		r.points.Hook(nil)
		if err == nil && n != revokeSize || err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, client.ErrRevoked) {
			t.Fatalf("seed %d, sequence %d: free at %s/%d: %d bytes, %v", *seed, i, point, nth, n, err)
		}
		v.begin() // if it has not
		r.check(<-v.done)
		if _, err := move(b, r.file, write); err == nil {
			t.Fatalf("seed %d, sequence %d: memory that was freed is read or written", *seed, i)
		}
		got := make([]byte, revokeSize)
		r.check(r.gpu.CopyOut(got, v.addr))
		if !bytes.Equal(got, bytes.Repeat([]byte{0x11}, revokeSize)) {
			t.Fatalf("seed %d, sequence %d: free at %s/%d: a device wrote to memory that was freed", *seed, i, point, nth)
		}
		r.check(errors.Join(b.Close(), r.gpu.Free(v.addr)))
		if write {
			r.writtenOrNot(i)
		}
	}
	r.fileHolds(r.data)
	for _, p := range points {
		if struck[p] < *revokes/20 {
			t.Errorf("%s was struck %d times in %d sequences", p, struck[p], *revokes)
		}
	}
}

func move(b *client.Buffer, f *client.File, write bool) (int64, error) {
	if write {
		return b.Write(f, 0, revokeSize, 0)
	}
	return b.Read(f, 0, revokeSize, 0)
}

// writtenOrNot wants blocks of the buffer or of the file, and makes the file what it was.
func (r *rig) writtenOrNot(sequence int) {
	r.t.Helper()
	got := r.contents()
	for at := 0; at < size; at += 4096 {
		block := got[at : at+4096]
		if !bytes.Equal(block, r.data[at:at+4096]) && (at >= revokeSize || !bytes.Equal(block, bytes.Repeat([]byte{0xee}, 4096))) {
			r.t.Fatalf("seed %d, sequence %d: block at %d is neither old nor new", *seed, sequence, at)
		}
	}
	r.restore()
}
