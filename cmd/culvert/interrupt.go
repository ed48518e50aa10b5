package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// An interruption is a signal that stops a command. The command puts things in
// order and then ends by that signal and not by an exit status: a shell goes on
// with its script after a program that took Ctrl-C for an error of its own.
type interruption struct {
	ctx    context.Context // cancelled by the signal
	cancel context.CancelFunc
	signal atomic.Int32 // 0 where there was none
	deaf   bool         // the one who started us has Ctrl-C ignored
}

// catch makes signals stop a command. The second one ends the process, whatever it
// waits for. A pipe that nobody reads is an error of the write. The end of the
// terminal stops a command too, unless nohup has it ignored.
func catch() *interruption {
	i := &interruption{deaf: signal.Ignored(unix.SIGINT)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGINT, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) {
		signal.Notify(stops, unix.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the write tells
	go func() {
		i.signal.Store(int32((<-stops).(unix.Signal)))
		signal.Stop(stops)
		i.cancel()
	}()
	return i
}

// end ends a process that a signal kept from succeeding as the signal would, and
// else returns the exit status.
func (i *interruption) end(code int) int {
	s := unix.Signal(i.signal.Load())
	if s == 0 || code == 0 {
		return code
	}
	if s != unix.SIGINT || !i.deaf {
		signal.Reset(s)
		_ = unix.Kill(os.Getpid(), s)
		time.Sleep(time.Second) // it arrives, and we do not return
	}
	return 128 + int(s)
}
