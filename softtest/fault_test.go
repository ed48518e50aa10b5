package softtest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

const fileSize = 256 << 10

// A rig is a file and a buffer on a software machine.
type rig struct {
	t    *testing.T
	m    *machine.Machine
	dev  gpu.Device
	drv  *cufile.Driver
	file *cufile.File
	path string
	mem  gpu.Span
	data []byte
}

// distinct are n bytes of which no two blocks are the same.
func distinct(n int) []byte {
	var b []byte
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(b))*0x9e3779b97f4a7c15)
	}
	return b
}

func newRig(t *testing.T) *rig {
	t.Helper()
	m := softtest.New(t, soft.Config{Memory: 64 << 20, Callback: true})
	r := &rig{t: t, m: m, path: filepath.Join(t.TempDir(), "data.bin"), data: distinct(fileSize)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(r.path, r.data, 0o600))
	var err error
	r.dev, err = m.GPU.Open(0)
	check(err)
	a, err := r.dev.Alloc(gpu.KindDevice, fileSize, 0)
	check(err)
	r.mem = gpu.Span{Base: a, Len: fileSize}
	r.drv, err = cufile.Open(m)
	check(err)
	fd, err := os.OpenFile(r.path, os.O_RDWR, 0)
	check(err)
	r.file, err = r.drv.Register(fd)
	check(err)
	t.Cleanup(func() {
		// A broken machine may refuse to end in order.
		_ = errors.Join(r.file.Close(), fd.Close(), r.drv.Close(), r.dev.Free(a), r.dev.Close())
	})
	return r
}

func (r *rig) read() (route.Receipt, error) { return r.file.ReadAt(r.t.Context(), r.mem, 0) }

// direct makes reads take the route nvfs, and skips the test where there is none.
func (r *rig) direct() {
	r.t.Helper()
	b, err := r.drv.RegisterBuffer(r.mem.Base, r.mem.Len)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = b.Close() })
	if got, err := r.read(); err != nil || got.Route != route.NVFS {
		r.t.Skipf("reads take the route %v here (%v)", got.Route, err)
	}
}

// memory is what the buffer contains.
func (r *rig) memory() []byte {
	r.t.Helper()
	got := make([]byte, fileSize)
	if err := r.dev.CopyOut(got, r.mem.Base); err != nil {
		r.t.Fatal(err)
	}
	return got
}

// A call fails with the errno or the code that was asked for, the others do not.
func TestFaultCodes(t *testing.T) {
	r := newRig(t)
	fired := softtest.Break(t, r.m, "errno=ENOSPC,call=read,nth=2; code=5030,call=write,file=*.bin; code=5011,call=register; code=5012,call=buffer")
	if _, err := r.read(); err != nil {
		t.Error(err)
	}
	if _, err := r.read(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the second read: %v", err)
	}
	if _, err := r.read(); err != nil {
		t.Error(err)
	}
	if _, err := r.file.WriteAt(t.Context(), r.mem, 0); cufile.CodeOf(err) != 5030 {
		t.Errorf("a write: %v", err)
	}
	fd, err := os.Open(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	if _, err := r.drv.Register(fd); cufile.CodeOf(err) != 5011 {
		t.Errorf("a registration: %v", err)
	}
	if _, err := r.drv.RegisterBuffer(r.mem.Base, r.mem.Len); cufile.CodeOf(err) != 5012 {
		t.Errorf("a registration of a buffer: %v", err)
	}
	if got := strings.Join(fired(), "; "); strings.Count(got, ": 1 time") != 4 {
		t.Errorf("came about: %s", got)
	}
}

// The requests of a batch are calls like others, also where several run together: the
// third fails, and alone, and none is counted twice: there is no ninth.
func TestFaultsOfABatch(t *testing.T) {
	r := newRig(t)
	fired := softtest.Break(t, r.m, "errno=EIO,call=read,nth=3; short=512,nth=6; code=5030,nth=9")
	b, err := r.drv.NewBatch(8)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const n = 4096
	reqs := make([]cufile.BatchRequest, 8)
	for i := range reqs {
		at := uint64(i * n)
		reqs[i] = cufile.BatchRequest{Cookie: i, Request: cufile.Request{Dir: route.Read, File: r.file, Mem: r.mem.Slice(at, n), Off: int64(at)}}
	}
	if err := b.Submit(reqs...); err != nil {
		t.Fatal(err)
	}
	events := make([]cufile.Event, len(reqs))
	if got, err := b.Collect(t.Context(), len(events), events); got != len(events) || err != nil {
		t.Fatalf("%d events: %v", got, err)
	}
	for _, e := range events {
		switch i := e.Cookie.(int); {
		case i == 2:
			if e.Status != cufile.Failed || !errors.Is(e.Err, unix.EIO) || e.Receipt.Machine != route.SoftwareMachine {
				t.Errorf("request 2: %v %v %v", e.Status, e.Err, e.Receipt)
			}
		case e.Status != cufile.Complete || e.Err != nil:
			t.Errorf("request %d: %v %v", i, e.Status, e.Err)
		case e.Receipt.Bytes != n && i != 5 || e.Receipt.Bytes != 512 && i == 5:
			t.Errorf("request %d moved %d bytes", i, e.Receipt.Bytes)
		}
	}
	if got := strings.Join(fired(), "; "); strings.Count(got, ": 1 time") != 2 {
		t.Errorf("came about: %s", got)
	}
}

func TestFaultShort(t *testing.T) {
	r := newRig(t)
	softtest.Break(t, r.m, "short=4K,nth=1")
	if got, err := r.read(); err != nil || got.Bytes != 4096 {
		t.Errorf("read %d bytes: %v", got.Bytes, err)
	}
	if got, err := r.read(); err != nil || got.Bytes != fileSize {
		t.Errorf("then %d bytes: %v", got.Bytes, err)
	}
}

func TestFaultSlow(t *testing.T) {
	r := newRig(t)
	const delay = 30 * time.Millisecond
	softtest.Break(t, r.m, "slow=30ms,every=2")
	start := time.Now()
	for range 4 {
		if _, err := r.read(); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("four reads took %v, two of them should take %v longer", took, delay)
	}
}

// The drive reports a bad block: nvidia-fs fails, and the read is an error or takes
// another route, which its receipt says. It never succeeds with other bytes.
func TestFaultMedia(t *testing.T) { r := newRig(t); r.direct(); r.survives("media,nth=1") }

// The drive is pulled.
func TestFaultUnplug(t *testing.T) { r := newRig(t); r.direct(); r.survives("unplug") }

// GPU memory that nvidia-fs pinned is revoked.
func TestFaultRevoke(t *testing.T) { r := newRig(t); r.direct(); r.survives("revoke") }

// A fault for which there is nothing to break has not come about.
func TestFaultRevokeNothing(t *testing.T) {
	r := newRig(t)
	fired := softtest.Break(t, r.m, "revoke") // no module has pinned memory
	if _, err := r.read(); err != nil || len(fired()) > 0 {
		t.Errorf("came about: %v, %v", fired(), err)
	}
}

// A fault of the drive that is due before nvidia-fs has used it waits for that.
func TestFaultWaits(t *testing.T) {
	r := newRig(t)
	fired := softtest.Break(t, r.m, "media,nth=1")
	if got, err := r.read(); err != nil || got.Route == route.NVFS {
		t.Fatalf("route %v: %v", got.Route, err)
	}
	r.direct()
	if _, err := r.read(); err == nil || len(fired()) != 1 {
		t.Errorf("the drive works (%v); came about: %v", err, fired())
	}
}

// What the drive was to do wrong in one test it does not do in the next.
func TestFaultEnds(t *testing.T) {
	r := newRig(t)
	r.direct()
	for _, kind := range []string{"media", "dma=drop"} {
		t.Run(kind, func(t *testing.T) {
			fired := softtest.Break(t, r.m, kind+",call=register")
			fd, err := os.Open(r.path)
			if err != nil {
				t.Fatal(err)
			}
			defer fd.Close()
			f, err := r.drv.Register(fd)
			if err != nil || len(fired()) > 0 {
				t.Fatal(err, fired())
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		if got, err := r.read(); err != nil || got.Route != route.NVFS {
			t.Errorf("after %s: route %v, %v", kind, got.Route, err)
		}
	}
}

// The drive says that it has done what it has not.
func TestFaultDMA(t *testing.T) {
	for _, lie := range []string{"drop", "misdirect", "transform"} {
		t.Run(lie, func(t *testing.T) { r := newRig(t); r.direct(); r.survives("dma=" + lie + ",nth=1") })
	}
}

// survives reads through the fault: a read fails, or its bytes are right.
func (r *rig) survives(spec string) {
	r.t.Helper()
	fired := softtest.Break(r.t, r.m, spec)
	for i := range 4 {
		if err := r.dev.Fill(r.mem.Base, 0, 1, fileSize); err != nil {
			r.t.Fatal(err)
		}
		got, err := r.read()
		right := bytes.Equal(r.memory(), r.data)
		if err == nil && !right {
			r.t.Errorf("%s: read %d by %v succeeded with wrong bytes", spec, i, got.Route)
		}
	}
	if got := fired(); len(got) != 1 || !strings.HasSuffix(got[0], ": 1 time") {
		r.t.Errorf("came about: %v", got)
	}
}

// Readers that meet faults of the machine at the same time do not wait for each other for
// ever, and none has wrong bytes. What may happen so often does not happen more often.
func TestFaultsOfManyReaders(t *testing.T) {
	r := newRig(t)
	r.direct()
	fired := softtest.Break(t, r.m, "dma=drop,p=0.5,times=9; media,p=0.2,times=7; dma=transform,p=0.2; revoke,nth=150")
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for range 20 {
				_, _ = r.read()
			}
		})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); readers.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("readers and faults wait for each other")
	}
	for _, s := range fired() {
		spec, count, _ := strings.Cut(s, ": ")
		var n, most int
		if _, times, ok := strings.Cut(spec, "times="); ok {
			_, _ = fmt.Sscan(times, &most)
		}
		if _, _ = fmt.Sscan(count, &n); most > 0 && n > most {
			t.Error(s)
		}
	}
}

// The file becomes shorter while it is used.
func TestFaultTruncate(t *testing.T) {
	r := newRig(t)
	softtest.Break(t, r.m, "truncate=64K,nth=2")
	for i, want := range []int64{fileSize, 64 << 10, 64 << 10} {
		if got, err := r.read(); err != nil || got.Bytes != want {
			t.Errorf("read %d: %d bytes, want %d (%v)", i, got.Bytes, want, err)
		}
	}
}

// A file that is shorter already does not become longer.
func TestFaultTruncateNothing(t *testing.T) {
	r := newRig(t)
	fired := softtest.Break(t, r.m, "truncate=1M")
	if got, err := r.read(); err != nil || got.Bytes != fileSize {
		t.Errorf("read %d bytes: %v", got.Bytes, err)
	}
	if st, err := os.Stat(r.path); err != nil || st.Size() != fileSize || len(fired()) > 0 {
		t.Errorf("the file has %d bytes (%v); came about: %v", st.Size(), err, fired())
	}
}

// A kernel fails: every later call of the GPU fails with its error.
func TestFaultSticky(t *testing.T) {
	r := newRig(t)
	softtest.Break(t, r.m, "sticky=700,nth=1")
	if _, err := r.read(); err == nil {
		t.Error("a read to a dead GPU succeeded")
	}
	if err := r.dev.Synchronize(); gpu.CodeOf(err) != 700 {
		t.Errorf("the GPU's error is %v", err)
	}
}
