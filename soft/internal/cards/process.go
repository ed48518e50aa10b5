package cards

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A process is a program that runs, or ran, in this PID namespace. Start is when the
// process began, in ticks. Stack is where its stack is, which changes when it executes
// another program; 0 is unknown.
type process struct{ pid, start, stack uint64 }

// self returns this process.
func self() (process, error) {
	p, _, err := readStat("self")
	if err == nil && p.pid != uint64(os.Getpid()) {
		err = fmt.Errorf("/proc is of another PID namespace: it calls this process %d, which is %d", p.pid, os.Getpid())
	}
	return p, err
}

// readStat reads /proc/NAME/stat.
func readStat(name string) (p process, state string, err error) {
	text, err := os.ReadFile("/proc/" + name + "/stat")
	if err != nil {
		return p, "", err
	}
	return parseStat(string(text))
}

// parseStat parses "26141 (a name) S 1 …", see proc_pid_stat(5).
func parseStat(text string) (p process, state string, err error) {
	number, _, _ := strings.Cut(text, " ")
	// The name may contain anything.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 26 {
		return p, "", fmt.Errorf("/proc/PID/stat: %q has too few fields", text)
	}
	var errs [3]error
	p.pid, errs[0] = strconv.ParseUint(number, 10, 32)
	p.start, errs[1] = strconv.ParseUint(f[19], 10, 64)
	p.stack, errs[2] = strconv.ParseUint(f[25], 10, 64)
	return p, f[0], errors.Join(errs[:]...)
}

// lives reports whether the process still runs the same program. One that cannot be
// looked at lives.
func (p process) lives() bool {
	now, state, err := readStat(strconv.FormatUint(p.pid, 10))
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH):
		return false
	case err != nil:
		return true
	case now.start != p.start:
		return false
	case now.stack != p.stack && now.stack != 0 && p.stack != 0:
		return false
	}
	return state != "Z" && state != "X" || p.threads() > 1
}

// threads counts the threads. A process whose first thread has ended is a zombie, and
// lives while it has others.
func (p process) threads() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
	return len(list)
}

// namespace returns the number of the PID namespace.
func namespace() (uint64, error) {
	text, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0, err
	}
	number := strings.TrimSuffix(strings.TrimPrefix(text, "pid:["), "]")
	return strconv.ParseUint(number, 10, 64)
}
