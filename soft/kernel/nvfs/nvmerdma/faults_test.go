package nvmerdma_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/nvme"
	client "github.com/culvert-io/culvert/internal/dev/nvfs"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/soft/kernel/nvfs/nvmerdma"
)

// A connection that is cut while commands are in flight is replaced: all bytes are right.
func TestCut(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.read()
	var left atomic.Int32
	r.points.Hook(func(name string, _ uint64) {
		if name != "nvmerdma.send" {
			return
		}
		if n := left.Add(-1); n == 7 || n == 0 {
			r.remote.Cut()
		}
	})
	for i := byte(0); r.remote.Stats().Connections < 4 && i < 250; i++ {
		left.Store(12) // 2 cuts: fewer than a request may be performed again
		r.fill(i)
		r.read()
		r.fill(i)
		left.Store(12)
		if n, err := r.buf.Write(r.file, 0, size, 0); n != size || err != nil {
			t.Fatal(n, err)
		}
		for j := range r.data {
			r.data[j] = i
		}
		r.fileHolds(r.data)
	}
	if s := r.remote.Stats(); s.Retries < 3 {
		t.Errorf("%d requests were performed again in %d connections", s.Retries, s.Connections)
	}
}

// deleting answers the next command as a target does that deletes the command's queue.
type deleting struct {
	nvmerdma.Fabrics
	next atomic.Bool
}

func (d *deleting) Connect(ctx context.Context, dev rdma.Device, dial func(context.Context) (net.Conn, error)) (nvmerdma.Controller, error) {
	c, err := d.Fabrics.Connect(ctx, dev, dial)
	return deletingController{c, &d.next}, err
}

type deletingController struct {
	nvmerdma.Controller
	next *atomic.Bool
}

func (c deletingController) Move(ctx context.Context, namespace uint32, write bool, mr rdma.MR, off int64) (uint16, error) {
	if c.next.Swap(false) {
		return uint16(abi.ABORTED_SQ_DELETION), nil
	}
	return c.Controller.Move(ctx, namespace, write, mr, off)
}

// A command that the target aborts because it deletes the queue is sent again by another
// connection.
func TestQueueDeleted(t *testing.T) {
	r := newRig(t, soft.Config{})
	d := &deleting{Fabrics: r.remote.Fabrics()}
	r.remote.SetFabrics(d)
	d.next.Store(true)
	r.read()
	d.next.Store(true)
	r.fill(7)
	if n, err := r.buf.Write(r.file, 0, size, 0); n != size || err != nil {
		t.Fatal(n, err)
	}
	r.fileHolds(bytes.Repeat([]byte{7}, size))
	if s := r.remote.Stats(); s.Retries != 2 || s.Connections != 3 {
		t.Errorf("%d requests were performed again in %d connections", s.Retries, s.Connections)
	}
}

// A target that does not answer is an error; nothing outside the request changes. When it
// answers again, so does the drive.
func TestDown(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.read()
	r.remote.Down(true)
	r.fill(0xee)
	// What is in the wire's buffers may still be answered once.
	err := error(nil)
	for i := 0; err == nil && i < 1000; i++ {
		_, err = r.buf.Read(r.file, 0, 64<<10, 64<<10)
	}
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %v", err)
	}
	if n, err := r.buf.Write(r.file, 0, 64<<10, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %d, %v", n, err)
	}
	got := r.memory()
	if !bytes.Equal(got[:64<<10], bytes.Repeat([]byte{0xee}, 64<<10)) || !bytes.Equal(got[128<<10:], bytes.Repeat([]byte{0xee}, size-128<<10)) {
		t.Error("memory outside the request has changed")
	}
	r.fileHolds(r.data)
	r.remote.Down(false)
	r.read()
}

// A connection that is cut again and again is an error after some tries, not a hang.
func TestTriesEnd(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.read()
	// A target that fails every command by losing its host: the adapter is gone from its
	// view when the file's memory cannot be reached.
	r.StoragePort().Unplug()
	before := r.remote.Stats()
	for range 2 {
		if n, err := r.buf.Read(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("read: %d, %v", n, err)
		}
		if n, err := r.buf.Write(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
			t.Errorf("write: %d, %v", n, err)
		}
	}
	if s := r.remote.Stats(); s.Out != before.Out || s.In != before.In {
		t.Errorf("data was moved: %+v", s)
	}
	r.fileHolds(r.data)
}

// GPU memory that cannot be mapped for the adapter fails the request: shadow pages are not
// read or written instead.
func TestCannotMap(t *testing.T) {
	var fail atomic.Bool
	r := newRig(t, soft.Config{Fail: func(string) bool { return fail.Load() }})
	fail.Store(true)
	r.fill(0xee)
	if n, err := r.buf.Read(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := r.buf.Write(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %d, %v", n, err)
	}
	if !bytes.Equal(r.memory(), bytes.Repeat([]byte{0xee}, size)) {
		t.Error("the memory has changed")
	}
	r.fileHolds(r.data)
	if s := r.remote.Stats(); s.MapErrors == 0 || s.CPU != 0 || s.GPU != 0 {
		t.Errorf("%+v", s)
	}
	fail.Store(false)
	r.read()
}

// A GPU that the fabric does not let the adapter reach: nvidia-fs maps it without asking, and
// the target gets remote access errors. No byte arrives, and the request fails.
func TestUnreachable(t *testing.T) {
	r := newRig(t, soft.Config{Isolated: true, NICs: []soft.NIC{{GPU: -1}}})
	r.fill(0xee)
	if n, err := r.buf.Read(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := r.buf.Write(r.file, 0, size, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %d, %v", n, err)
	}
	if !bytes.Equal(r.memory(), bytes.Repeat([]byte{0xee}, size)) {
		t.Error("the memory has changed")
	}
	r.fileHolds(r.data)
	if s := r.remote.Stats(); s.Retries == 0 || s.Out+s.In != 0 {
		t.Errorf("%+v", s)
	}
}

// Memory that is freed while a command is in flight: the free waits for it, and what is
// allocated in its place keeps its bytes.
func TestFreedInFlight(t *testing.T) {
	for _, point := range []string{"nvmerdma.map", "nvmerdma.send", "nvmerdma.done"} {
		r := newRig(t, soft.Config{Callback: true})
		r.read()
		gate := r.points.Stop(point)
		result := make(chan error, 1)
		go func() {
			_, err := r.buf.Read(r.file, 0, size, 0)
			result <- err
		}()
		<-gate.Arrived()
		callback := r.points.Stop("nvfs.callback")
		freed := make(chan error, 1)
		go func() { freed <- r.gpu.Free(r.addr) }()
		<-callback.Arrived()
		callback.Open()
		select {
		case <-freed:
			t.Errorf("%s: the free did not wait", point)
		default:
		}
		gate.Open()
		// The client learns of the free by EIO, or by the end-fence page after the transfer.
		if err := <-result; err != nil && !errors.Is(err, syscall.EIO) && !errors.Is(err, client.ErrRevoked) {
			t.Errorf("%s: %v", point, err)
		}
		r.check(<-freed)
		var err error
		r.addr, err = r.gpu.Alloc(gpu.KindDevice, size, 0)
		r.check(err)
		r.fill(0x11)
		if n, err := r.buf.Read(r.file, 0, size, 0); n != 0 || err == nil {
			t.Errorf("%s: a read into freed memory: %d, %v", point, n, err)
		}
		if !bytes.Equal(r.memory(), bytes.Repeat([]byte{0x11}, size)) {
			t.Errorf("%s: memory that was allocated in its place has changed", point)
		}
		r.fileHolds(r.data)
	}
}

// The machine goes down under a client that has not closed its node, after I/O.
func TestCloseUnderClient(t *testing.T) {
	r := newRig(t, soft.Config{})
	r.read()
	r.check(r.gpu.Free(r.addr))
	r.addr = 0
	r.remote.Close() // rmmod, when requests have ended
	if n, err := r.buf.Read(r.file, 0, size, 0); n != 0 || err == nil {
		t.Errorf("a read after the module is unloaded: %d, %v", n, err)
	}
	r.fileHolds(r.data)
}

var seed = flag.Uint64("seed", 1, "of TestProperty")

// Random reads and writes under random faults leave the file and the memory as a model has
// them: what succeeded is there, and what failed has changed nothing outside itself.
func TestProperty(t *testing.T) {
	const blocks, bs = size / 4096, 4096
	r := newRig(t, soft.Config{Scatter: true, Seed: *seed})
	rng := rand.New(rand.NewPCG(*seed, 7))
	var cuts atomic.Int32
	r.points.Hook(func(name string, _ uint64) {
		if name == "nvmerdma.send" && cuts.Add(-1) == 0 {
			r.remote.Cut()
		}
	})
	mem := bytes.Repeat([]byte{0xee}, size)
	r.fill(0xee)
	for step := range 80 {
		n := 1 + rng.IntN(blocks/2)
		if rng.IntN(2) == 0 {
			n = 1 + rng.IntN(16)
		}
		at, off := rng.IntN(blocks-n+1), rng.IntN(blocks-n+1)
		if at%16 != 0 { // within a GPU page, or from its start
			n = min(n, 16-at%16)
		}
		cuts.Store(int32(rng.IntN(12)))
		write := rng.IntN(2) == 0
		var got int64
		var err error
		if write {
			got, err = r.buf.Write(r.file, int64(off*bs), uint64(n*bs), uint64(at*bs))
			copy(r.data[off*bs:(off+n)*bs], mem[at*bs:])
		} else {
			got, err = r.buf.Read(r.file, int64(off*bs), uint64(n*bs), uint64(at*bs))
			copy(mem[at*bs:(at+n)*bs], r.data[off*bs:])
		}
		if err != nil || got != int64(n*bs) {
			t.Fatalf("seed %d, step %d: write %v: %d of %d bytes, %v", *seed, step, write, got, n*bs, err)
		}
		if write && step%3 == 0 { // bytes that are nowhere else
			rng2 := byte(rng.Uint32())
			r.check(r.gpu.Fill(r.addr+gpu.Addr(at*bs), uint32(rng2), 1, uint64(n*bs)))
			copy(mem[at*bs:], bytes.Repeat([]byte{rng2}, n*bs))
		}
		if !bytes.Equal(r.memory(), mem) {
			t.Fatalf("seed %d, step %d: the memory differs from the model", *seed, step)
		}
		if got, err := os.ReadFile(r.path); err != nil || !bytes.Equal(got, r.data) {
			t.Fatalf("seed %d, step %d: the file differs from the model, %v", *seed, step, err)
		}
	}
	if r.remote.Stats().Connections < 3 {
		t.Errorf("%+v", r.remote.Stats())
	}
}
