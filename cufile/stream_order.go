package cufile

import (
	"errors"
	"sync"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// How a stream and a transfer wait for each other is decided here and nowhere else.
//
// An idle stream has reached the transfer: the goroutine starts in the call. Only in a
// stream that waits for no other can that be asked. What another thread enqueues in the
// stream during the call may run beside the transfer: its place was either.
//
// In a stream with work, a host function tells that it has reached the transfer. It only
// starts a goroutine, because CUDA has few threads for host functions: a blocked one
// would stop other streams. In both cases a wait for a word of pinned memory blocks the
// stream, and the goroutine writes the word when the transfer has ended. The GPU waits
// for the word, so that no thread blocks.
//
// There is no queue of our own that could be full: a stream that waits for one transfer
// has not reached the next.
//
// An event instead of the host function would need a thread per stream that waits for
// it, and belongs to the context of the program, which may be reset while it is kept. A
// word that the stream writes would need a thread that spins. docs/performance.md has the
// times of all of them. An event cannot replace the word that ends the transfer: a stream
// does not wait for an event that was not yet recorded.

// inOrder runs a transfer in the order of the stream, on a goroutine.
func (d *Driver) inOrder(s Stream, f *File, dir route.Dir, op *StreamOp) error {
	words, err := d.completionWords()
	if err != nil {
		return err
	}
	w, err := words.acquire()
	if err != nil {
		words.release()
		return err
	}
	q := newQueuedTransfer()
	q.file, q.dir, q.op, q.words, q.word = f, dir, *op, words, w
	// Between the calls no other transfer may get into the stream.
	lock := d.streams.lock(s)
	defer d.streams.unlock(s, lock)
	if idle, err := waitIfIdle(s, w); err != nil {
		q.end()
		return err
	} else if idle {
		d.handoff.run(&q.run)
		return nil
	}
	if err := s.Do(q.begin); err != nil {
		q.end()
		return err
	}
	err = s.Wait(w.at, w.turn, wordSize, gpu.CondGEQ)
	q.enqueued <- err == nil // q belongs to its goroutine now
	return err
}

// A queuedTransfer is a transfer from its call to its end. It is used again, because the
// call has no time for allocations.
type queuedTransfer struct {
	file  *File
	dir   route.Dir
	op    StreamOp
	words *completionWords
	word  word

	run      func()    // moves the data and ends the transfer
	begin    func()    // the host function: the stream has reached the transfer
	enqueued chan bool // whether the stream waits for the transfer
}

var queuedTransfers sync.Pool

func newQueuedTransfer() *queuedTransfer {
	if q, ok := queuedTransfers.Get().(*queuedTransfer); ok {
		return q
	}
	q := &queuedTransfer{enqueued: make(chan bool, 1)}
	q.run, q.begin = q.move, func() { go q.moveIfEnqueued() }
	return q
}

func (q *queuedTransfer) move() {
	r, err := q.file.executeAsync(q.dir, &q.op)
	if q.op.Done != nil {
		q.op.Done(r, err)
	}
	q.end()
}

// moveIfEnqueued abandons a transfer for which the stream does not wait: it would not be
// in order.
func (q *queuedTransfer) moveIfEnqueued() {
	if <-q.enqueued {
		q.move()
	} else {
		q.end()
	}
}

// end lets the stream continue. The transfer must not be used afterwards.
func (q *queuedTransfer) end() {
	words := q.words
	words.complete(q.word)
	q.file, q.op, q.words = nil, StreamOp{}, nil
	queuedTransfers.Put(q)
	words.release()
}

// waitIfIdle makes an idle stream wait for w and reports whether it was idle.
func waitIfIdle(s Stream, w word) (bool, error) {
	i, ok := s.(interface {
		WaitIfIdle(a gpu.Addr, value uint64, width int, cond gpu.Cond) (bool, error)
	})
	if !ok {
		return false, nil
	}
	return i.WaitIfIdle(w.at, w.turn, wordSize, gpu.CondGEQ)
}

// completionWords returns the driver's words and holds them until release.
func (d *Driver) completionWords() (*completionWords, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closing:
		return nil, DriverClosing
	case d.count == 0:
		return nil, DriverNotInitialized
	}
	if d.words == nil {
		// Its own reference to the GPU: transfers may be in streams longer than the
		// driver is open.
		dev, err := d.m.GPU.Open(0)
		if err != nil {
			return nil, err
		}
		d.words = &completionWords{dev: dev, holds: 1}
	}
	d.words.hold()
	return d.words, nil
}

const (
	wordSize  = 8
	wordsSize = 64 << 10
)

// completionWords are words of pinned memory that streams wait for. They are freed when
// the driver is closed and no stream waits for one.
type completionWords struct {
	dev gpu.Device

	mu    sync.Mutex
	holds int // the driver, and transfers
	after func() error
	pages []gpu.Addr
	idle  []word
}

// A word is reused as soon as its transfer has ended: its value only grows, so that the
// condition stays true for a stream that has not yet looked.
type word struct {
	at   gpu.Addr
	turn uint64 // the value that ends the transfer
}

// acquire returns an unused word.
func (c *completionWords) acquire() (word, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) == 0 {
		a, err := c.dev.Alloc(gpu.KindHost, wordsSize, gpu.HostPortable)
		if err != nil {
			return word{}, err
		}
		clear(gpu.HostBytes(a, wordsSize))
		c.pages = append(c.pages, a)
		for off := gpu.Addr(0); off < wordsSize; off += wordSize {
			c.idle = append(c.idle, word{at: a + off})
		}
	}
	w := c.idle[len(c.idle)-1]
	c.idle = c.idle[:len(c.idle)-1]
	w.turn++
	return w, nil
}

// complete lets the stream of w continue.
func (c *completionWords) complete(w word) {
	storeWord(w.at, w.turn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, w)
}

func (c *completionWords) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds++
}

// end ends the hold of the driver. It calls after with the last hold: closing GPUs frees
// memory, which waits for streams, and so for what the program does after the call.
func (c *completionWords) end(after func() error) error {
	c.mu.Lock()
	c.after = after
	c.mu.Unlock()
	return c.release()
}

// release ends a hold.
func (c *completionWords) release() error {
	c.mu.Lock()
	c.holds--
	last := c.holds == 0
	c.mu.Unlock()
	if !last {
		return nil
	}
	errs := []error{c.after()}
	for _, a := range c.pages {
		errs = append(errs, c.dev.Free(a))
	}
	return errors.Join(append(errs, c.dev.Close())...)
}

// streamLocks has a lock for each stream into which something is being enqueued: a
// stream whose queue is full stops no other.
type streamLocks struct {
	mu    sync.Mutex
	locks map[Stream]*streamLock
	// unused is for the next stream: usually there is one call at a time.
	unused *streamLock
}

type streamLock struct {
	sync.Mutex
	users int
}

func (l *streamLocks) lock(s Stream) *streamLock {
	l.mu.Lock()
	if l.locks == nil {
		l.locks = map[Stream]*streamLock{}
	}
	one := l.locks[s]
	if one == nil {
		one = l.unused
		if l.unused = nil; one == nil {
			one = new(streamLock)
		}
		l.locks[s] = one
	}
	one.users++
	l.mu.Unlock()
	one.Lock()
	return one
}

func (l *streamLocks) unlock(s Stream, one *streamLock) {
	one.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.locks, s)
		l.unused = one
	}
}
