package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

const greeting = `{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}`

// fakeQEMU greets, accepts qmp_capabilities, and sends lines after the next command.
func fakeQEMU(t *testing.T, lines ...string) *monitor {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fmt.Fprintln(theirs, greeting)
		for _, answer := range [][]string{{`{"return": {}}`}, lines} {
			if _, err := theirs.Read(make([]byte, 4096)); err != nil {
				return
			}
			for _, l := range answer {
				fmt.Fprintln(theirs, l)
			}
		}
		theirs.Close()
	}()
	m, err := openMonitor(ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); <-done })
	return m
}

const (
	answered = `{"return": {}}`
	other    = `{"event": "DEVICE_DELETED", "data": {"device": "other"}, "timestamp": {"seconds": 1}}`
	deleted  = `{"event": "DEVICE_DELETED", "data": {"device": "nv1"}}`
)

// A drive is gone when QEMU has answered and reported its removal, in any order.
func TestUnplug(t *testing.T) {
	for _, lines := range [][]string{{other, answered, deleted}, {deleted, other, answered}} {
		if err := fakeQEMU(t, lines...).unplug("nv1"); err != nil {
			t.Errorf("%q: %v", lines, err)
		}
	}
	for _, lines := range [][]string{{}, {answered}, {answered, other}, {deleted}} {
		if err := fakeQEMU(t, lines...).unplug("nv1"); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q: %v", lines, err)
		}
	}
	err := fakeQEMU(t, `{"error": {"class": "DeviceNotFound", "desc": "no nv1"}}`).unplug("nv1")
	if err == nil || err.Error() != "qmp device_del: no nv1 (DeviceNotFound)" {
		t.Errorf("rejected command: %v", err)
	}
}

func TestMonitorTimeout(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go io.Copy(io.Discard, theirs)
	m := &monitor{conn: ours}
	m.dec = nil
	if err := ours.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if err := m.execute("stop", nil, ""); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	theirs.Close()
}

func TestNoGreeting(t *testing.T) {
	for _, first := range []string{"", "hello\n", `{"return": {}}` + "\n"} {
		ours, theirs := net.Pipe()
		go func() {
			io.WriteString(theirs, first)
			theirs.Close()
		}()
		if _, err := openMonitor(ours); err == nil {
			t.Errorf("%q was accepted as a greeting", first)
		}
		ours.Close()
	}
}

// Whatever QEMU sends, the monitor neither panics nor hangs.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(greeting + `{"return": {}}{"event": "STOP"}`))
	f.Add([]byte(greeting + greeting + `{"error": {}}`))
	f.Add([]byte(`{"event": {}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() { theirs.Write(b); theirs.Close() }()
		if m, err := openMonitor(ours); err == nil {
			m.unplug("nv1")
		}
		ours.Close()
	})
}

func TestLibraries(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{self, "/bin/sh"} {
		libs, err := libraries(program)
		if err != nil {
			t.Errorf("%s: %v", program, err)
		}
		for _, l := range libs {
			if st, err := os.Stat(l); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%s needs %s: %v", program, l, err)
			}
		}
	}
	if _, err := libraries("/etc/passwd"); err == nil || !strings.Contains(err.Error(), "/etc/passwd") {
		t.Errorf("not a program: %v", err)
	}
	for text, want := range map[string]string{
		"\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n": "[/lib/libc.so.6 /lib64/ld.so.2] <nil>",
		"\tlibgone.so => not found\n": "[] needs libgone.so, which is not installed",
	} {
		list, err := parseLdd(text)
		if got := fmt.Sprint(list, " ", err); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
