package vfio

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxVectors is more than the driver has queues.
const maxVectors = 65

// irqs are a device's MSI-X vectors, each with an event counter that the
// kernel raises.
type irqs struct {
	mu      sync.Mutex
	events  []*os.File
	waiting sync.WaitGroup
	chans   map[int]chan struct{}
	closed  bool
}

// Interrupt is a channel that gets a value when the device sends a vector.
func (t *Transport) Interrupt(vector int) (<-chan struct{}, error) {
	q := &t.irqs
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, fmt.Errorf("vfio %s: interrupts: %w", t.pci, os.ErrClosed)
	}
	if q.events == nil {
		if err := q.open(t.device); err != nil {
			return nil, fmt.Errorf("vfio %s: interrupts: %w", t.pci, err)
		}
	}
	if vector < 0 || vector >= len(q.events) {
		return nil, fmt.Errorf("vfio %s: interrupt vector %d: the device has %d: %w", t.pci, vector, len(q.events), errors.ErrUnsupported)
	}
	c := q.chans[vector]
	if c == nil {
		c = make(chan struct{}, 1)
		q.chans[vector] = c
		f := q.events[vector]
		q.waiting.Go(func() { pass(f, c) })
	}
	return c, nil
}

// pass hands events on until the counter is closed.
func pass(f *os.File, c chan struct{}) {
	var count [8]byte
	for {
		if _, err := f.Read(count[:]); err != nil {
			return
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// open gives every vector its counter. They are set at once: kernels before
// 6.5 cannot add one later.
func (q *irqs) open(device *os.File) error {
	info := irqInfo{Argsz: uint32(sizeOf[irqInfo]()), Index: VFIO_PCI_MSIX_IRQ_INDEX}
	if _, err := ioctlOn(device, "VFIO_DEVICE_GET_IRQ_INFO", VFIO_DEVICE_GET_IRQ_INFO, &info); err != nil {
		return err
	}
	n := min(int(info.Count), maxVectors)
	if n == 0 {
		return fmt.Errorf("the device has no MSI-X: %w", errors.ErrUnsupported)
	}
	fds := make([]int32, n)
	var events []*os.File
	for i := range fds {
		// Not blocking, so that the runtime waits for all of them at once.
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			closeAll(events)
			return os.NewSyscallError("eventfd", err)
		}
		fds[i] = int32(fd)
		events = append(events, os.NewFile(uintptr(fd), "eventfd"))
	}
	if err := setEventfds(device, fds); err != nil {
		closeAll(events)
		return err
	}
	q.events, q.chans = events, map[int]chan struct{}{}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// close ends interrupts, and those who wait for them.
func (q *irqs) close(device *os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.events == nil {
		return nil
	}
	off := irqSet{
		Argsz: uint32(sizeOf[irqSet]()), Flags: VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER, Index: VFIO_PCI_MSIX_IRQ_INDEX,
	}
	_, err := ioctlOn(device, "VFIO_DEVICE_SET_IRQS", VFIO_DEVICE_SET_IRQS, &off)
	closeAll(q.events)
	q.waiting.Wait()
	q.events = nil
	return err
}
