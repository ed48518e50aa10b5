package cufiletest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/cufile"
	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/route"
)

// A player plays one case.
type player struct {
	eng  Engine
	dev  gpu.Device
	c    *Case
	path string

	file   *model
	memory *memory
	bytes  []byte // what the memory must hold
	seen   []byte // room for what it does hold

	fd      int
	handle  Handle
	closed  bool     // the handle was
	others  []Handle // of further registrations
	cleanup []func()

	refused bool
	faults  []error
}

// play runs the steps.
func (r *player) play(dir string) error {
	r.path = filepath.Join(dir, "case")
	if err := r.c.File.make(r.path); err != nil {
		return err
	}
	defer os.Remove(r.path)
	defer r.clean()
	r.file = newModel(r.c.File)
	var err error
	if r.memory, err = alloc(r.dev, r.c.Mem); err != nil {
		return err
	}
	r.cleanup = append(r.cleanup, func() { r.fault(r.memory.free()) })
	r.bytes = append(r.bytes[:0], random[4<<20:4<<20+r.c.Mem.Size]...)
	if err := r.memory.store(r.bytes); err != nil {
		return err
	}
	r.fd, err = unix.Open(r.path, r.c.File.Flags|unix.O_CLOEXEC, 0)
	if err != nil {
		if r.c.File.Flags&unix.O_DIRECT != 0 && errors.Is(err, unix.EINVAL) {
			r.refused = true // by the file system
			return nil
		}
		return &os.PathError{Op: "open", Path: r.path, Err: err}
	}
	r.cleanup = append(r.cleanup, func() { unix.Close(r.fd) })
	for i := range r.c.Steps {
		if !r.step(&r.c.Steps[i]) {
			break
		}
	}
	return nil
}

func (r *player) clean() {
	for _, h := range r.others {
		r.fault(h.Close())
	}
	if r.handle != nil && !r.closed {
		r.fault(r.handle.Close())
	}
	for i := len(r.cleanup) - 1; i >= 0; i-- {
		r.cleanup[i]()
	}
}

func (r *player) fault(err error) {
	if err != nil {
		r.faults = append(r.faults, err)
	}
}

// step runs one step and reports whether the case can go on.
func (r *player) step(s *Step) bool {
	n, err := r.call(s)
	if _, ok := errors.AsType[*route.RequireError](err); ok {
		r.refused = true
		return false
	}
	o := outcome{step: s, n: n}
	if err != nil {
		o.code = r.eng.Code(err)
		o.n = 0
	}
	want := outcome{step: s, code: int(s.Want)}
	if s.Want == cufile.Success {
		want.n = r.expect(s, o)
	}
	o.damage = r.damage(s)
	if o != want {
		r.fault(fmt.Errorf("%v: got %v, want %v: %w", s, o, want, cmp.Or(err, errors.New("no error"))))
	}
	return (o.code == 0) == (want.code == 0)
}

// call makes the call.
func (r *player) call(s *Step) (n int64, err error) {
	switch s.Call {
	case Register:
		return 0, r.register(s.FD)
	case Deregister:
		r.closed = true
		return 0, r.handle.Close()
	case RegisterBuffer:
		p := r.pointer(s)
		if err = r.eng.RegisterBuffer(p, s.Len); err == nil {
			r.cleanup = append(r.cleanup, func() { _ = r.eng.DeregisterBuffer(p) }) // a step may have done so
		}
		return 0, err
	case DeregisterBuffer:
		return 0, r.eng.DeregisterBuffer(r.pointer(s))
	case Read:
		return r.handle.Read(r.pointer(s), s.Len, s.Off, s.Buf)
	case Write:
		return r.handle.Write(r.pointer(s), s.Len, s.Off, s.Buf)
	case Truncate:
		return 0, os.Truncate(r.path, s.Off)
	default:
		err := r.memory.free()
		time.Sleep(2 * time.Millisecond) // within one it need not be noticed
		return 0, err
	}
}

func (r *player) register(which FD) error {
	fd, err := r.descriptor(which)
	if err != nil {
		return err
	}
	h, err := r.eng.Register(fd)
	switch {
	case err != nil:
		return err
	case r.handle == nil || r.closed:
		r.handle, r.closed = h, false
	default:
		r.others = append(r.others, h)
	}
	return nil
}

// descriptor opens what a step wants to register.
func (r *player) descriptor(which FD) (fd int, err error) {
	switch which {
	case TheFile:
		return r.fd, nil
	case MinusOne:
		return -1, nil
	case Closed:
		return 1 << 19, nil
	case Again:
		fd, err = unix.Open(r.path, r.c.File.Flags|unix.O_CLOEXEC, 0)
	case Dup:
		fd, err = unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	case Directory:
		fd, err = unix.Open(filepath.Dir(r.path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	case Socket:
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	case NullDev:
		fd, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	case PathOnly:
		fd, err = unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	case Pipe:
		var ends [2]int
		err = unix.Pipe2(ends[:], unix.O_CLOEXEC)
		fd = ends[0]
		r.cleanup = append(r.cleanup, func() { unix.Close(ends[1]) })
	}
	if err == nil {
		r.cleanup = append(r.cleanup, func() { unix.Close(fd) })
	}
	return fd, err
}

func (r *player) pointer(s *Step) gpu.Addr {
	switch {
	case s.Null:
		return 0
	case s.Wild != 0:
		return s.Wild
	}
	return r.memory.base + gpu.Addr(s.At)
}
