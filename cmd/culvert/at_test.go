package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/quality/intercept"
)

// at runs a program and does something when it is about to make a system call:
//
//	at ACTION CALL[:NAME[+SKIP]] [ACTION CALL ...] -- PROGRAM ARGUMENT...
//
// CALL is open, tmpfile (an open of a file without a name), rename, link, symlink,
// sync or another of package intercept. With a NAME only calls count that have a path
// which ends in it, without the first SKIP of them. The actions are
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
	var names []string
	for _, r := range rules {
		names = append(names, r.call)
	}
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	stop, err := intercept.Start(cmd, names, func(c *intercept.Call) intercept.Verdict { return act(c, rules) })
	if err != nil {
		return 0, err
	}
	err = cmd.Wait()
	stop()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return 0, err
	}
	if cmd.ProcessState.ExitCode() < 0 {
		return 128 + int(unix.SIGKILL), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// act does what the rules say.
func act(c *intercept.Call, rules []*atRule) intercept.Verdict {
	for _, r := range rules {
		if r.call != c.Name || !slices.ContainsFunc(c.Paths, func(p string) bool { return strings.HasSuffix(p, r.name) }) || r.skip.Add(-1) >= 0 {
			continue
		}
		switch r.action {
		case "kill":
			return intercept.Kill
		case "fail":
			return intercept.Refuse
		case "stop":
			if _, err := os.Stat("stopped"); err != nil {
				_ = os.WriteFile("stopped", nil, 0o600)
				waitFor("go")
			}
		case "log":
			f, err := os.OpenFile("log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
			if err == nil {
				fmt.Fprintln(f, c.Name, strings.Join(c.Paths, " "))
				f.Close()
			}
		}
	}
	return intercept.Proceed
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
