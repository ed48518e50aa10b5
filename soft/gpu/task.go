package gpu

import (
	"fmt"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

type taskKind uint8

const (
	taskCopy taskKind = iota
	taskFill
	taskLaunch
	taskDo
	taskWrite
	taskWait
	taskRecord
	taskWaitEvent
)

// A task is one operation of a stream. It holds its memory.
type task struct {
	kind  taskKind
	after []ticket

	dst, src place
	n        uint64
	value    uint64
	width    int
	cond     gpu.Cond

	fn     func()
	launch *launch
	rec    *record
}

// execute runs a task, or only completes it if the context is lost or skip is set. It
// reports whether the stream gave up waiting.
func (s *Stream) execute(t *task, skip bool) (broken bool) {
	if t.dst.blk != nil {
		defer s.ctx.drv.release(t.dst, t.src)
	}
	for _, o := range t.after {
		o.s.reach(o.n)
	}
	skip = skip || s.ctx.lost.Load() != nil
	switch {
	case t.kind == taskRecord:
		t.rec.complete(skip)
	case skip:
	case t.kind == taskDo:
		t.fn()
	case t.kind == taskWaitEvent && t.rec.done == nil:
		// The work of a process that ended will not be done later: the stream goes on.
		_ = t.rec.shared.Wait(s.ctx.ended)
		return s.ctx.ended()
	case t.kind == taskWaitEvent:
		select {
		case <-t.rec.done:
			return t.rec.skipped && closed(s.ctx.dead)
		case <-s.ctx.dead:
			return true
		}
	default:
		return s.touch(t)
	}
	return false
}

// touch runs a task that accesses memory. A fault loses the context.
func (s *Stream) touch(t *task) (broken bool) {
	defer func() {
		if why := fault(recover()); why != "" {
			s.ctx.lose(gpu.ErrIllegalAddress, why)
		}
	}()
	switch t.kind {
	case taskCopy:
		move(t.dst.cursor(), t.src.cursor(), t.n)
	case taskFill:
		fill(t.dst, uint32(t.value), t.width, t.n)
	case taskLaunch:
		t.launch.run(s.ctx)
	case taskWrite:
		storeWord(t.word(), t.value)
	case taskWait:
		return !s.waitWord(t)
	}
	return false
}

// word returns the 4 or 8 bytes of a task. An aligned word never crosses frames.
func (t *task) word() []byte { return t.dst.cursor().now[:t.width] }

const (
	firstPause = 10 * time.Microsecond
	lastPause  = time.Millisecond
)

// waitWord waits until the word meets the condition, and reports whether it did. Writes
// of the CPU and of other devices cannot be observed, so it polls, less and less often.
func (s *Stream) waitWord(t *task) bool {
	word := t.word()
	for pause := firstPause; !meets(loadWord(word), t.value, t.width, t.cond); pause = min(2*pause, lastPause) {
		if closed(s.ctx.dead) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// meets is CUDA's comparison. GEQ is cyclic, for counters that wrap around.
func meets(word, value uint64, width int, c gpu.Cond) bool {
	switch {
	case c == gpu.CondGEQ && width == 4:
		return int32(uint32(word)-uint32(value)) >= 0
	case c == gpu.CondGEQ:
		return int64(word-value) >= 0
	case c == gpu.CondEQ:
		return word == value
	case c == gpu.CondAND:
		return word&value != 0
	case width == 4:
		return ^(uint32(word) | uint32(value)) != 0
	}
	return ^(word | value) != 0
}

// Copy enqueues a copy. If the driver does not know the memory, it waits for the copy.
func (s *Stream) Copy(dst, src gpu.Addr, n uint64) error {
	const call = "cuMemcpyAsync"
	if err := s.check(call); err != nil || n == 0 {
		return err
	}
	to, from, err := s.ctx.drv.acquire2(dst, src, n)
	if err != nil {
		return fail(fmt.Sprintf("%s(%v, %v, %d)", call, dst, src, n), err)
	}
	plain := to.blk.plain || from.blk.plain
	if err := s.push(call, task{kind: taskCopy, dst: to, src: from, n: n}); err != nil || !plain {
		return err
	}
	return s.Synchronize()
}

// Do enqueues a function on the host.
func (s *Stream) Do(fn func()) error {
	if fn == nil {
		return gpu.Fail("cuLaunchHostFunc(nil)", gpu.ErrInvalidValue, "")
	}
	return s.push("cuLaunchHostFunc", task{kind: taskDo, fn: fn})
}

// Write enqueues a store.
func (s *Stream) Write(a gpu.Addr, value uint64, width int) error {
	return s.pushWord("cuStreamWriteValue", a, task{kind: taskWrite, value: value, width: width})
}

// Wait makes the stream wait until the word at a meets cond.
func (s *Stream) Wait(a gpu.Addr, value uint64, width int, cond gpu.Cond) error {
	return s.pushWord("cuStreamWaitValue", a, task{kind: taskWait, value: value, width: width, cond: cond})
}

func (s *Stream) pushWord(call string, a gpu.Addr, t task) error {
	op := func() string { return fmt.Sprintf("%s%d(%v, %#x, %d)", call, 8*t.width, a, t.value, t.cond) }
	if err := s.check(call); err != nil {
		return err
	}
	switch {
	case t.width != 4 && t.width != 8:
		return gpu.Fail(call, gpu.ErrInvalidValue, fmt.Sprintf("words have 4 or 8 bytes, not %d", t.width))
	case uint64(a)%uint64(t.width) != 0:
		return gpu.Fail(op(), gpu.ErrInvalidValue, fmt.Sprintf("the address is not a multiple of %d", t.width))
	case t.cond > gpu.CondNOR:
		return gpu.Fail(op(), gpu.ErrInvalidValue, "unknown condition")
	}
	if t.width == 4 {
		t.value = uint64(uint32(t.value))
	}
	var err error
	if t.dst, err = s.ctx.drv.acquire(a, uint64(t.width), wantWord); err != nil {
		return fail(op(), err)
	}
	return s.push(call, t)
}
