package ibverbs

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/ibverbs"
	"github.com/culvert-io/culvert/internal/dl"
)

// asyncEvents reads what an adapter reports beside completions: a queue that overflowed,
// or that it failed. Events of queue pairs need nothing: their requests complete with an
// error.
type asyncEvents struct {
	dev  *Device
	file *os.File
	done sync.WaitGroup
}

// pollable is a file of Go's poller for a descriptor of the library, which becomes
// non-blocking.
func pollable(fd int32, name string) (*os.File, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		_ = unix.Close(own)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(own), name), nil
}

func watch(d *Device) (*asyncEvents, error) {
	f, err := pollable(at[abi.ContextHead](d.ctx).AsyncFD, "asynchronous events of "+d.info.Name)
	if err != nil {
		return nil, err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	e := &asyncEvents{dev: d, file: f}
	e.done.Go(func() {
		for conn.Read(func(uintptr) bool { return e.next() }) == nil {
		}
	})
	return e, nil
}

// next handles one event, and reports whether there was one.
func (e *asyncEvents) next() bool {
	ev := new(abi.AsyncEvent)
	if status(e.dev.lib.getAsyncEvent, e.dev.ctx, dl.Ref(ev)) != nil {
		return false
	}
	switch ev.Type {
	case abi.EventCQErr:
		e.dev.lost(ev.Element)
	case abi.EventDeviceFatal:
		e.dev.fatal.Store(true)
	}
	e.dev.lib.ackAsyncEvent.Call(dl.Ref(ev))
	return true
}

// lost marks a queue that overflowed.
func (d *Device) lost(cq uintptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.queues[cq]; q != nil {
		q.lost.Store(true)
	}
}

func (e *asyncEvents) stop() {
	_ = e.file.Close() // which ends the wait
	e.done.Wait()
}
