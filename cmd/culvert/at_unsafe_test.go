package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// at runs a program and does something when it is about to make a system call:
//
//	at ACTION CALL[:NAME[+SKIP]] [ACTION CALL ...] -- PROGRAM ARGUMENT...
//
// CALL is open, tmpfile (an open of a file without a name), rename, link, symlink or
// sync. With a NAME only calls count that have a path which ends in it, without the
// first SKIP of them. The actions are
//
//	stop   create the file "stopped" and go on when there is a file "go"; once
//	kill   kill the program
//	fail   let the call fail: the file system does not support it
//	log    append the call and its paths to the file "log"
//
// It gives scripts the moments that races and crashes need.
func at() {
	status, err := runAt(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "at:", err)
		status = 125
	}
	os.Exit(status)
}

// An atCall is a system call by the name that rules have for it.
type atCall struct {
	name  string
	paths []int // arguments that are paths
	fd    bool  // the first argument is a descriptor
}

var atCalls = map[uint32]atCall{
	unix.SYS_OPENAT:    {"open", []int{1}, false},
	unix.SYS_OPENAT2:   {"open", []int{1}, false},
	unix.SYS_RENAMEAT:  {"rename", []int{1, 3}, false},
	unix.SYS_RENAMEAT2: {"rename", []int{1, 3}, false},
	unix.SYS_LINKAT:    {"link", []int{1, 3}, false},
	unix.SYS_SYMLINKAT: {"symlink", []int{0, 2}, false},
	unix.SYS_FSYNC:     {"sync", nil, true},
	unix.SYS_FDATASYNC: {"sync", nil, true},
}

type atRule struct {
	action, call, name string
	skip               atomic.Int64
}

func parseAt(args []string) (rules []*atRule, program []string, err error) {
	for len(args) > 2 && args[0] != "--" {
		call, name, _ := strings.Cut(args[1], ":")
		name, skip, _ := strings.Cut(name, "+")
		r := &atRule{action: args[0], call: call, name: name}
		if n, err := strconv.ParseInt(skip, 10, 64); err == nil {
			r.skip.Store(n)
		}
		rules = append(rules, r)
		args = args[2:]
	}
	if len(args) < 2 || args[0] != "--" || len(rules) == 0 {
		return nil, nil, errors.New("usage: at ACTION CALL[:NAME] ... -- PROGRAM ARGUMENT...")
	}
	return rules, args[1:], nil
}

func runAt(args []string) (int, error) {
	rules, program, err := parseAt(args)
	if err != nil {
		return 0, err
	}
	// The filter is this thread's alone, and the program inherits it.
	runtime.LockOSThread()
	listener, err := listen(rules)
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	go func() {
		if err := decide(listener, rules); err != nil {
			fmt.Fprintln(os.Stderr, "at:", err)
			os.Exit(125)
		}
	}()
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 0, err
	}
	if cmd.ProcessState.ExitCode() < 0 {
		return 128 + int(unix.SIGKILL), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// listen sends the calls of the rules, made by this thread and its children, to a
// listener.
func listen(rules []*atRule) (int, error) {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // seccomp_data.nr
	for nr, c := range atCalls {
		if slices.ContainsFunc(rules, func(r *atRule) bool { return r.call == c.name || r.call == "tmpfile" && c.name == "open" }) {
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

// A notice says that a call is about to be made, and a verdict what becomes of it.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type verdict struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

func decide(listener int, rules []*atRule) error {
	for {
		var n notice
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		if errno == unix.EINTR || errno == unix.ENOENT { // it was killed
			continue
		}
		if errno != 0 {
			return os.NewSyscallError("receive notice", errno)
		}
		go func() {
			v := verdict{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			switch act(&n, rules) {
			case "kill":
				return // the call never goes on
			case "fail":
				v = verdict{id: n.id, err: -int32(unix.EOPNOTSUPP)}
			}
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&v)))
		}()
	}
}

// act does what the rules say and returns the action that ends the call, or "".
func act(n *notice, rules []*atRule) string {
	call := atCalls[uint32(n.nr)]
	if n.nr == unix.SYS_OPENAT && n.args[2]&unix.O_TMPFILE == unix.O_TMPFILE {
		call.name = "tmpfile"
	}
	paths := n.paths(call)
	for _, r := range rules {
		if r.call != call.name || !slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, r.name) }) || r.skip.Add(-1) >= 0 {
			continue
		}
		switch r.action {
		case "kill":
			_ = unix.Kill(int(n.pid), unix.SIGKILL)
			return r.action
		case "fail":
			return r.action
		case "stop":
			if _, err := os.Stat("stopped"); err != nil {
				_ = os.WriteFile("stopped", nil, 0o600)
				waitFor("go")
			}
		case "log":
			f, err := os.OpenFile("log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err == nil {
				fmt.Fprintln(f, call.name, strings.Join(paths, " "))
				f.Close()
			}
		}
	}
	return ""
}

// waitFor waits for a file, not for ever.
func waitFor(name string) {
	for range 10_000 {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// absolute resolves a path that is relative to an open directory, the argument
// before it.
func (n *notice) absolute(arg int, path string) string {
	if arg == 0 || int32(n.args[arg-1]) == unix.AT_FDCWD || strings.HasPrefix(path, "/") {
		return path
	}
	dir, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[arg-1])))
	return dir + "/" + path
}

// paths are those of the call's arguments. A file without a name has none.
func (n *notice) paths(call atCall) (paths []string) {
	if call.fd {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
		return []string{name}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return nil
	}
	defer mem.Close()
	for _, i := range call.paths {
		buf := make([]byte, unix.PathMax)
		got, _ := mem.ReadAt(buf, int64(n.args[i]))
		text, _, _ := bytes.Cut(buf[:got], []byte{0})
		paths = append(paths, n.absolute(i, string(text)))
	}
	return paths
}
