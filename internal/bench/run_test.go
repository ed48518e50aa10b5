package bench

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/machine"
	"github.com/culvert-io/culvert/route"
	"github.com/culvert-io/culvert/soft"
)

// A mover is an engine over a file in memory. It loses the blocks from lost on.
type mover struct {
	dev  gpu.Device
	file []byte
	lost int64
}

func (m *mover) engine() *engine {
	caller := func(mem gpu.Span) (*caller, error) { return oneByOne(mem, m.move, func() {}), nil }
	return &engine{"mover", caller, func() {}}
}

func (m *mover) move(dir route.Dir, mem gpu.Span, off int64) (int64, error) {
	n := int64(mem.Len)
	switch {
	case off >= m.lost:
		return n, nil
	case dir == route.Write:
		return n, m.dev.CopyOut(m.file[off:off+n], mem.Addr())
	}
	return n, m.dev.CopyIn(mem.Addr(), m.file[off:off+n])
}

func TestVerifyNoticesWhatWasNotMoved(t *testing.T) {
	dev := openGPU(t)
	const size, block = 4 << 20, 2 << 20 // more than a stride
	for _, pattern := range []Pattern{SeqRead, SeqWrite} {
		for _, lost := range []int64{size, block} {
			m := &mover{dev, make([]byte, size), lost}
			for i := range m.file {
				m.file[i] = byte(i >> 14)
			}
			w := Workload{Pattern: pattern, Block: block, Threads: 1, Batch: 2, Kind: gpu.KindDevice, Verify: true, Bytes: size}
			r := &run{w: w, e: m.engine(), size: size, dev: dev, file: bytes.NewReader(m.file)}
			_, err := r.do(t.Context())
			if whole := lost == size; whole != (err == nil) {
				t.Errorf("%s with all below %d moved: %v", pattern, lost, err)
			}
			if err != nil && !strings.Contains(err.Error(), "at offset 2097152") {
				t.Errorf("%s: %v does not say where", pattern, err)
			}
		}
	}
}

func openGPU(t *testing.T) gpu.Device {
	t.Helper()
	m, err := machine.FromSoft(soft.Config{Memory: 64 << 20}, "test")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close()
		m.Close()
	})
	return dev
}

// TestFirstIsOfWhoDidSomething: a caller that made no call does not count.
func TestFirstIsOfWhoDidSomething(t *testing.T) {
	did := threadResult{ops: 1, first: 5 * time.Microsecond, last: 7 * time.Microsecond}
	did.by[route.Read].add(time.Microsecond, 1)
	late := threadResult{}
	r := &run{w: Workload{Threads: 3}, e: new(engine)}
	for _, threads := range [][]threadResult{{did, late, late}, {late, did, late}, {late, late, did}} {
		if res := newResult(r, threads, time.Second, 0); res.FirstDone != 5 || res.LastDone != 7 || res.Ops != 1 {
			t.Errorf("first %v, last %v, %d operations", res.FirstDone, res.LastDone, res.Ops)
		}
	}
}

func TestTransferAll(t *testing.T) {
	data := "the file"
	steps := 0
	call := func(fd int, p []byte, off int64) (int, error) {
		if steps++; steps == 1 {
			return -1, unix.EINTR
		}
		return copy(p[:min(3, len(p))], data[min(off, int64(len(data))):]), nil
	}
	p := make([]byte, 7)
	if n, err := transferAll(call, 0, "x", p, 0); n != 7 || err != nil || string(p) != "the fil" {
		t.Errorf("%d, %v: %q", n, err, p)
	}
	if n, err := transferAll(call, 0, "x", p, 4); n != 4 || err != io.EOF || string(p[:n]) != "file" {
		t.Errorf("%d, %v: %q", n, err, p)
	}
	refuse := func(int, []byte, int64) (int, error) { return -1, unix.EINVAL }
	_, err := transferAll(refuse, 0, "x", p, 5)
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "x: 7 bytes at offset 5") || !strings.Contains(err.Error(), "--direct") {
		t.Errorf("%v names neither the place nor the fix", err)
	}
}
