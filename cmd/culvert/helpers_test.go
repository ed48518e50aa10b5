package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// asUser becomes a program that runs as another user.
func asUser(id int) {
	path, err := exec.LookPath(os.Args[1])
	if err == nil {
		err = errors.Join(syscall.Setgroups(nil), syscall.Setgid(id), syscall.Setuid(id))
	}
	if err == nil {
		err = syscall.Exec(path, os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, os.Args[0], err)
	os.Exit(125)
}

func other() { asUser(65534) }
func third() { asUser(65533) }

// await waits until files exist.
func await(ts *testscript.TestScript, _ bool, names []string) {
	for _, name := range names {
		for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
			if _, err := os.Lstat(ts.MkAbs(name)); err == nil {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("%s does not appear", name)
			}
		}
	}
}

// xattr sets an extended attribute of a file, or prints it.
func xattr(ts *testscript.TestScript, _ bool, args []string) {
	path, name := ts.MkAbs(args[0]), "user."+args[1]
	if len(args) > 2 {
		ts.Check(unix.Setxattr(path, name, []byte(args[2]), 0))
		return
	}
	buf := make([]byte, 256)
	n, err := unix.Getxattr(path, name, buf)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", buf[:n])
}
