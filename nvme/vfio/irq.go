package vfio

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	abi "github.com/culvert-io/culvert/internal/abi/vfio"
)

// maxVectors covers the admin queue and the 64 I/O queues of the driver.
const maxVectors = 65

// irqs are a device's MSI-X vectors, each with an eventfd that the kernel
// signals.
type irqs struct {
	mu      sync.Mutex
	events  []*os.File
	waiting sync.WaitGroup
	chans   map[int]chan struct{}
	closed  bool
}

// Interrupt is a channel that receives a value for each interrupt of a vector.
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
		return nil, fmt.Errorf("vfio %s: interrupt vector %d: device has %d vectors: %w", t.pci, vector, len(q.events), errors.ErrUnsupported)
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

// pass forwards events until the eventfd is closed.
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

// open gives every vector an eventfd, all at once: kernels before 6.5 cannot add
// one later.
func (q *irqs) open(device *os.File) error {
	info := abi.IRQInfo{Argsz: sizeOf[abi.IRQInfo](), Index: abi.VFIO_PCI_MSIX_IRQ_INDEX}
	if err := ioctlOn(device, abi.VFIO_DEVICE_GET_IRQ_INFO, &info); err != nil {
		return err
	}
	n := min(int(info.Count), maxVectors)
	if n == 0 {
		return fmt.Errorf("device has no MSI-X: %w", errors.ErrUnsupported)
	}
	fds := make([]int32, n)
	var events []*os.File
	for i := range fds {
		// Nonblocking, so that the runtime polls it instead of using a thread.
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

// close disables interrupts and stops the goroutines that wait for them.
func (q *irqs) close(device *os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.events == nil {
		return nil
	}
	off := abi.IRQSet{
		Argsz: sizeOf[abi.IRQSet](), Flags: abi.VFIO_IRQ_SET_DATA_NONE | abi.VFIO_IRQ_SET_ACTION_TRIGGER, Index: abi.VFIO_PCI_MSIX_IRQ_INDEX,
	}
	err := ioctlOn(device, abi.VFIO_DEVICE_SET_IRQS, &off)
	closeAll(q.events)
	q.waiting.Wait()
	q.events = nil
	return err
}
