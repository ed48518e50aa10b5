package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/atomicfile"
	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/trace"
	"github.com/culvert-io/culvert/internal/vendor"
	"github.com/culvert-io/culvert/internal/watch"
	"github.com/culvert-io/culvert/route"
)

// pollInterval is shorter than the minute for which statistics of ended processes are
// kept.
const pollInterval = 15 * time.Second

// watch runs the program with the libcufile that records calls and forwards them, and
// reports.
func (o *runOptions) watch(path string, argv, env []string, dir string, on route.Machine, stderr io.Writer) (err error) {
	library, err := o.watched(dir)
	if err != nil {
		return err
	}
	if err := cmp.Or(o.checkReport(), o.checkTrace()); err != nil {
		return err
	}
	made, err := newRecords(os.TempDir())
	if err != nil {
		return fmt.Errorf("create a directory for the records of processes: %w (fix: %s)", err, setTMPDIR)
	}
	defer func() { err = errors.Join(err, made.Discard()) }()
	records := made.Name()
	env = append(env, "CULVERT_RUN_DIR="+records, "CULVERT_WATCHED="+library)
	if o.fault != "" {
		env = append(env, "CULVERT_FAULT="+o.fault)
	}
	if o.trace != "" {
		env = append(env, "CULVERT_TRACE_DIR="+records)
	}

	collected := watch.Collect(records, pollInterval)
	report := &watch.Report{Program: argv, Engine: o.engine, Library: library, Machine: on}
	start := time.Now()
	status, err := runChild(path, argv, env)
	if err != nil {
		return runError(stderr, path, err)
	}
	report.Status, report.Seconds = status, time.Since(start).Seconds()
	if err := collected.Report(report, unwatchable(path)); err != nil {
		return err
	}
	if o.fault != "" && len(report.Faults) == 0 {
		report.Notes = append(report.Notes, o.unbroken())
	}
	if err := o.write(report, stderr); err != nil {
		// Hours of work may be in it.
		fmt.Fprintf(stderr, "culvert: write the report: %v; here it is\n", err)
		if err := show(stderr, o.json, report); err != nil || status == 0 {
			return cmp.Or(err, error(exitStatus(exitFailed)))
		}
	}
	if err := o.writeTrace(records, stderr); err != nil {
		return err
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// unbroken says why nothing was broken.
func (o *runOptions) unbroken() string {
	why := "no fault came about in the processes of this report: no call matched " + o.fault
	if o.without {
		why += ", or what it would do changed nothing there: a call or file was not longer, or no module had pinned memory"
	}
	if o.drive {
		why += ", or no transfer used the drive: it serves the route nvfs, which needs a registered buffer"
	}
	return why
}

// checkReport finds out before the program runs that the report will have no place.
func (o *runOptions) checkReport() error {
	if o.report == "" || o.report == "-" {
		return nil
	}
	path := o.report
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Dir(path)
		_, err = os.Stat(path)
	} else if err == nil && st.IsDir() {
		err = unix.EISDIR
	}
	if err == nil {
		err = unix.Access(path, unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("--report %s: %w", o.report, err)
	}
	return checkMade("--report", o.report, reportMark, jsonReportMark)
}

// checkTrace does the same for the trace.
func (o *runOptions) checkTrace() error {
	return cmp.Or(checkReplaced("--trace", o.trace, nil), checkMade("--trace", o.trace, trace.Beginning))
}

// newRecords makes a directory for records in parent, and removes those of commands that
// were killed.
func newRecords(parent string) (*atomicfile.File, error) {
	atomicfile.Sweep(parent)
	return atomicfile.Create(filepath.Join(parent, "culvert-run"), atomicfile.Options{Mode: 0o700, Dir: true})
}

// watched is the library that does the work.
func (o *runOptions) watched(dir string) (string, error) {
	if o.engine == engineCulvert {
		return filepath.Join(dir, "libcufile.so.0"), nil
	}
	if o.library != "" {
		_, err := os.Stat(o.library)
		return o.library, err
	}
	path, err := vendor.Find()
	if err != nil {
		return "", fmt.Errorf("observe: %w (fix: --libcufile PATH)", err)
	}
	return path, nil
}

// writeTrace writes what the processes recorded.
func (o *runOptions) writeTrace(records string, stderr io.Writer) error {
	if o.trace == "" {
		return nil
	}
	err := atomicfile.Write(o.trace, 0o666, func(w io.Writer) error {
		n, err := trace.Collect(w, records)
		if n == 0 && err == nil {
			fmt.Fprintf(stderr, "culvert: %s is empty: no process moved data through Culvert's libcufile\n", o.trace)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

func (o *runOptions) write(r *watch.Report, stderr io.Writer) error {
	switch {
	case !o.reports():
		return nil
	case o.report == "-":
		return show(os.Stdout, o.json, r)
	case o.report == "" && o.json:
		return show(stderr, true, r)
	case o.report == "":
		folded := human.NewFoldWriter(stderr, human.Width(os.Stderr))
		return errors.Join(show(folded, false, r), folded.Flush())
	}
	f, err := os.Create(o.report)
	if err != nil {
		return err
	}
	return errors.Join(show(f, o.json, r), f.Close())
}

// runChild runs a program to its end and passes signals on. Those of the terminal reach
// the program anyway, which is in the same process group. The program ends with this
// process, also if it is killed: without a report it would be this process. Signals that were
// ignored before this process are ignored in the program, as far as Go tells.
func runChild(path string, argv, env []string) (status int, err error) {
	signals := make(chan os.Signal, 16)
	passed, ignored := []os.Signal{unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGQUIT}, []os.Signal(nil)
	for s, is := range map[os.Signal]bool{unix.SIGHUP: signal.Ignored(unix.SIGHUP), unix.SIGINT: intIgnored} {
		if is {
			signal.Ignore(s) // the program inherits that, but no handler
			ignored = append(ignored, s)
		} else {
			passed = append(passed, s)
		}
	}
	signal.Notify(signals, passed...)
	defer signal.Stop(signals)
	cmd := &exec.Cmd{Path: path, Args: argv, Env: env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal is sent when the thread ends that started the program
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for _, s := range ignored { // the program may have a handler now
		signal.Notify(signals, s)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if !fromTerminal(s) {
				_ = cmd.Process.Signal(s) // it may have ended just now
			}
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				return 0, err
			} else if ok && exit.Sys().(syscall.WaitStatus).Signaled() {
				return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

// fromTerminal reports whether a signal went to the whole process group: the terminal
// sends these two, if it is ours. It need not be the standard input.
func fromTerminal(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// unwatchable says why no library can be preloaded into a program, or nothing.
func unwatchable(path string) string {
	if st, err := os.Stat(path); err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		return path + " runs with the rights of its owner, so the dynamic linker preloads nothing"
	}
	f, err := elf.Open(path)
	if err != nil {
		return "" // a script: its interpreter is another program
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return ""
		}
	}
	return path + " is statically linked: its calls cannot be watched or replaced (fix: link it dynamically)"
}
