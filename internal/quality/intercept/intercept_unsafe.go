// Package intercept shows a test each system call of a program before it is made, and
// lets the test kill the program there or let the call fail. It uses notifications of
// seccomp, which need no rights.
package intercept

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Verdict says what becomes of a call.
type Verdict int

const (
	Proceed Verdict = iota
	Kill            // the program ends before the call
	Refuse          // the call fails: not supported
)

// Start starts a program and calls each before every system call that has one of the
// names, also of the threads and processes that the program starts. each is called
// from several goroutines, and the call waits for its verdict. stop must be called
// after the program has ended.
func Start(cmd *exec.Cmd, names []string, each func(*Call) Verdict) (stop func(), err error) {
	wake := make([]int, 2)
	if err := unix.Pipe2(wake, unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	ended := make(chan struct{})
	started := make(chan error)
	go func() {
		// The filter is this thread's alone, the program inherits it, and the thread
		// ends with the goroutine.
		runtime.LockOSThread()
		listener, err := listen(names)
		if err == nil {
			go func() {
				defer close(ended)
				receive(listener, wake[0], each)
				unix.Close(listener)
			}()
			err = cmd.Start()
		} else {
			close(ended)
		}
		started <- err
	}()
	stop = func() {
		unix.Close(wake[1])
		<-ended
		unix.Close(wake[0])
	}
	if err := <-started; err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// listen sends the calls, made by this thread and its children, to a listener.
func listen(names []string) (int, error) {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // seccomp_data.nr
	for nr, c := range calls {
		if slices.Contains(names, c.name) || nr == unix.SYS_OPENAT && slices.Contains(names, "tmpfile") {
			filter = append(filter,
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nr, Jf: 1},
				unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
		}
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return 0, os.NewSyscallError("seccomp", errno)
	}
	return int(fd), nil
}

// A notice says that a call is about to be made, and an answer what becomes of it.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// receive answers notices until the program has ended or wake is closed.
func receive(listener, wake int, each func(*Call) Verdict) {
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(wake)}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notice
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the caller was killed
		}
		go n.decide(listener, each)
	}
}

func (n *notice) decide(listener int, each func(*Call) Verdict) {
	a := answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	switch each(n.call()) {
	case Kill:
		_ = unix.Kill(int(n.pid), unix.SIGKILL)
		return // the call is never made
	case Refuse:
		a = answer{id: n.id, err: -int32(unix.EOPNOTSUPP)}
	}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
}
