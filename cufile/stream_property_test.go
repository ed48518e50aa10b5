package cufile_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A streamModel is what the property test knows of its streams.
type streamModel struct {
	f       *fixture
	h       *cufile.File
	buf     *cufile.Buffer
	streams []gpu.Stream
	gates   []gpu.Addr // unopened
	written []uint64   // slots that were written to the file

	mu    sync.Mutex
	order [][]int // ended transfers by stream
	want  [][]int
	calls []*atomic.Int32
	bad   []string
}

const slot, slots = 4096, 64

// transfer enqueues one, and behind it a fill of its memory: a transfer that touched the
// memory after its end would change that.
func (m *streamModel) transfer(rt *rapid.T) {
	i, s := len(m.calls), rapid.IntRange(0, len(m.streams)-1).Draw(rt, "stream")
	if i == slots {
		return
	}
	kind := rapid.SampledFrom([]string{"read", "write", "fails", "closed"}).Draw(rt, "kind")
	calls, fails := new(atomic.Int32), kind == "fails" || kind == "closed"
	m.calls, m.want[s] = append(m.calls, calls), append(m.want[s], i)
	mem := m.buf.Span().Slice(uint64(i)*slot, slot)
	op := cufile.StreamOp{Mem: mem, Off: int64(i) * slot, Done: func(r route.Receipt, err error) {
		calls.Add(1)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.order[s] = append(m.order[s], i)
		if failed := err != nil; failed != fails || !failed && r.Bytes != slot {
			m.bad = append(m.bad, fmt.Sprintf("transfer %d: %d bytes, %v", i, r.Bytes, err))
		}
	}}
	var err error
	switch kind {
	case "read":
		err = m.h.ReadAsync(m.streams[s], op)
	case "write":
		m.written = append(m.written, uint64(i))
		if err = m.streams[s].Fill(mem.Addr(), uint32(i), 1, slot); err == nil {
			err = m.h.WriteAsync(m.streams[s], op)
		}
	case "fails":
		op.Args = func() (gpu.Span, int64, error) { return mem, -1, nil }
		err = m.h.ReadAsync(m.streams[s], op)
	case "closed":
		h := m.f.open(os.O_RDONLY)
		blocked := m.gate(s) // it is not reached before the file is closed
		if err = h.ReadAsync(m.streams[s], op); err == nil {
			err = h.Close()
		}
		m.gates = append(m.gates, blocked)
	}
	if err == nil {
		err = m.streams[s].Fill(mem.Addr(), 0xEE, 1, slot)
	}
	if err != nil {
		rt.Fatal(err)
	}
}

// gate makes a stream wait for a word.
func (m *streamModel) gate(s int) gpu.Addr {
	a, err := m.f.dev.Alloc(gpu.KindHost, 8, 0)
	if err == nil {
		clear(gpu.HostBytes(a, 8))
		err = m.streams[s].Wait(a, 1, 8, gpu.CondEQ)
	}
	if err != nil {
		m.f.t.Fatal(err)
	}
	return a
}

// open opens gates, on a stream that waits for none.
func (m *streamModel) open(n int) {
	s := m.f.stream()
	defer s.Close()
	for _, a := range m.gates[:n] {
		if err := s.Write(a, 1, 8); err != nil {
			m.f.t.Fatal(err)
		}
	}
	m.f.wait(s)
	m.gates = m.gates[n:]
}

// drain finishes and closes the streams.
func (m *streamModel) drain() {
	m.open(len(m.gates))
	for _, s := range m.streams {
		m.f.wait(s)
		if err := s.Close(); err != nil {
			m.f.t.Error(err)
		}
	}
	m.streams = nil
}

// wait makes a stream wait for what another has now.
func (m *streamModel) wait(rt *rapid.T) {
	from, to := rapid.IntRange(0, len(m.streams)-1).Draw(rt, "from"), rapid.IntRange(0, len(m.streams)-1).Draw(rt, "to")
	event, err := m.f.dev.NewEvent()
	if err == nil {
		err = m.streams[from].Record(event)
	}
	if err == nil {
		err = m.streams[to].WaitEvent(event)
	}
	if err != nil {
		rt.Fatal(err)
	}
}

// Whatever is enqueued in whatever streams: each transfer ends once, those of a stream
// in their order, failures stop nothing, and nothing touches memory after its end.
func TestStreamsAgainstAModel(t *testing.T) {
	f := newFixture(t, softConfig(), slots*slot)
	buf := f.buffer(slots * slot)
	h := f.open(os.O_RDWR)
	rapid.Check(t, func(rt *rapid.T) {
		m := &streamModel{f: f, h: h, buf: buf, streams: []gpu.Stream{f.stream(), f.stream(), f.blockingStream(), f.blockingStream()}}
		defer m.drain() // also if rapid ends the attempt: the next one has the same memory
		m.order, m.want = make([][]int, len(m.streams)), make([][]int, len(m.streams))
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"transfer", "transfer", "transfer", "gate", "open", "wait"}).Draw(rt, "step") {
			case "transfer":
				m.transfer(rt)
			case "gate":
				m.gates = append(m.gates, m.gate(rapid.IntRange(0, len(m.streams)-1).Draw(rt, "gated")))
			case "open":
				m.open(rapid.IntRange(0, len(m.gates)).Draw(rt, "gates"))
			case "wait":
				m.wait(rt)
			}
		}
		m.drain()
		m.check(rt)
	})
}

func (m *streamModel) check(rt *rapid.T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.bad {
		rt.Error(s)
	}
	for s := range m.want {
		if !slices.Equal(m.order[s], m.want[s]) {
			rt.Errorf("stream %d ended %v, want %v", s, m.order[s], m.want[s])
		}
	}
	for i, n := range m.calls {
		if n.Load() != 1 {
			rt.Errorf("transfer %d ended %d times", i, n.Load())
		}
	}
	if len(m.calls) > 0 {
		n := len(m.calls) * slot
		if got := m.f.gpuBytes(m.buf.Span().Slice(0, uint64(n))); !bytes.Equal(got, bytes.Repeat([]byte{0xEE}, n)) {
			rt.Error("memory was touched after the end of its transfer")
		}
	}
	file, err := os.ReadFile(m.f.path)
	for _, i := range m.written {
		if err != nil || !bytes.Equal(file[i*slot:][:slot], bytes.Repeat([]byte{byte(i)}, slot)) {
			rt.Errorf("transfer %d did not write its bytes: %v", i, err)
		}
	}
}
