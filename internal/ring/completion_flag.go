package ring

import (
	"sync/atomic"
	"time"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/tune"
)

// A completionFlag is a word of pinned memory that the GPU writes after a copy. On an
// H200 it is visible 0.8 us before the driver's own.
type completionFlag struct {
	stream copyWriter // nil if the stream has no such call
	word   *atomic.Uint32
	addr   gpu.Addr
	seq    uint32 // of the last copy
}

// A copyWriter is a stream that queues a copy and the write of a flag in one call.
type copyWriter interface {
	CopyWrite(dst, src gpu.Addr, n uint64, at gpu.Addr, value uint32) error
}

func (f *completionFlag) init(stream gpu.Stream, addr gpu.Addr) {
	f.stream, _ = stream.(copyWriter)
	f.addr, f.word = addr, hostWord(addr)
	f.word.Store(0) // the memory may have been a ring's before
}

// flagSpins is how often a flag is polled, some 50 us. After that the driver waits,
// and reports what is wrong: after an error no flag is written.
const flagSpins = 50_000

// seen waits for the flag of the last copy.
func (f *completionFlag) seen() bool {
	for range flagSpins {
		if f.word.Load() == f.seq {
			return true
		}
	}
	return false
}

// flagCallers is how many callers may use flags: a flag is one more call into the
// driver, which admits one thread at a time.
const flagCallers = 2

// flagChoice chooses between completion flags (the default) and the driver's wait,
// for reads by few callers.
type flagChoice struct {
	choice tune.Choice
	off    atomic.Bool // the driver does not write flags
}

// flagSample is how many reads of at most a page there are for one that is timed.
// Their copies take the same time whatever their size.
const flagSample = 16

// copyToGPU copies the first n bytes of the slot's segment and waits.
func (m *smallSlots) copyToGPU(s *smallSlot, dst gpu.Addr, n int) error {
	src := s.addr + gpu.Addr(s.segment.at)
	if m.poll.upTo.Load() > 0 {
		if !m.poll.covers(int64(n)) || s.flag.stream == nil || m.flags.off.Load() {
			return s.copy(dst, src, uint64(n))
		}
		m.poll.polls.flags.Add(1)
		return m.copyBy(tune.Default, s, dst, src, uint64(n))
	}
	if !s.few || s.flag.stream == nil || m.flags.off.Load() {
		return s.copy(dst, src, uint64(n))
	}
	s.reads++
	if n > page || s.reads%flagSample != 0 {
		return m.copyBy(m.flags.choice.Faster(), s, dst, src, uint64(n))
	}
	method := m.flags.choice.Pick(page)
	began := time.Now()
	err := m.copyBy(method, s, dst, src, uint64(n))
	if err == nil && m.flags.choice.Add(method, page, time.Since(began)) {
		m.log.Debug("ring: the faster wait for a small copy has changed", "completion_flag", m.flags.choice.Faster() == tune.Default)
	}
	return err
}

func (m *smallSlots) copyBy(method tune.Method, s *smallSlot, dst, src gpu.Addr, n uint64) error {
	if method != tune.Default {
		return s.copy(dst, src, n)
	}
	f := &s.flag
	f.seq++
	flagErr := f.stream.CopyWrite(dst, src, n, f.addr, f.seq)
	if flagErr == nil && f.seen() {
		return nil
	}
	if flagErr != nil {
		// The copy may be in flight without its flag, so it is repeated.
		if err := s.stream.Copy(dst, src, n); err != nil {
			_ = s.stream.Synchronize()
			return err
		}
		m.flags.off.Store(true)
		m.log.Debug("ring: no completion flags; the driver waits for small copies", "error", flagErr)
	}
	return s.wait()
}
