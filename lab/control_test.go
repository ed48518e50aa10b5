package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeMonitor speaks as QEMU would: device_del is accepted for known ids, and
// the device is gone a moment later.
func fakeMonitor(conn net.Conn) {
	defer conn.Close()
	fmt.Fprintln(conn, `{"QMP": {}}`)
	sc := bufio.NewScanner(conn)
	for sc.Scan() {
		var c struct {
			Execute   string
			Arguments struct{ ID string }
			ID        int
		}
		json.Unmarshal(sc.Bytes(), &c)
		if c.Execute == "device_del" && c.Arguments.ID != "nv1" {
			fmt.Fprintf(conn, `{"error": {"class": "DeviceNotFound", "desc": "Device '%s' not found"}, "id": %d}`+"\n", c.Arguments.ID, c.ID)
			continue
		}
		fmt.Fprintf(conn, `{"return": {}, "id": %d}`+"\n", c.ID)
		if c.Execute == "device_del" {
			fmt.Fprintln(conn, `{"event": "DEVICE_DELETED", "data": {"path": "/machine/peripheral/nv1/x"}}`)
			fmt.Fprintln(conn, `{"event": "DEVICE_DELETED", "data": {"device": "nv1"}}`)
		}
	}
}

func TestServe(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	m := machine{stop: stop}
	var out bytes.Buffer
	m.stdout.w, m.stderr.w = &out, &out
	guest, requests := net.Pipe()
	qemu, monitor := net.Pipe()
	go fakeMonitor(qemu)
	served := make(chan struct{})
	go func() { m.serve(ctx, requests, monitor); close(served) }()
	answers := bufio.NewReader(guest)
	ask := func(line string) string {
		fmt.Fprintln(guest, line)
		s, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(s)
	}
	for line, want := range map[string]string{
		"unplug nv1": "ok",
		"unplug nv7": "qmp device_del: Device 'nv7' not found (DeviceNotFound)",
		"dance":      `unknown request "dance"`,
		"drain 0 x":  "expected integer",
		"drain 0 0":  "ok",
	} {
		if got := ask(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}

	// The answer to drain comes after the last byte, not before.
	fmt.Fprintln(guest, "drain 3 2")
	m.stderr.Write([]byte("12"))
	m.stdout.Write([]byte("ab"))
	m.stdout.Write([]byte("c"))
	if s, err := answers.ReadString('\n'); s != "ok\n" || err != nil || out.String() != "12abc" {
		t.Errorf("drain: %q, %v, output %q", s, err, out.String())
	}

	if got := ask("powercut"); got != "ok" || !errors.Is(context.Cause(ctx), errPowerCut) {
		t.Errorf("powercut: %q, cause %v", got, context.Cause(ctx))
	}
	guest.Close()
	<-served
}

func TestCounterWaits(t *testing.T) {
	c := counter{w: new(bytes.Buffer)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Write([]byte("ab"))
	if err := c.reach(ctx, 2); err != nil {
		t.Errorf("two of two bytes: %v", err)
	}
	if err := c.reach(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("two of three bytes: %v", err)
	}
	m := machine{stdout: counter{n: 3}, stderr: counter{n: 1}}
	if err := m.drain(ctx, 3, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("all of stdout and half of stderr: %v", err)
	}
}

func TestTail(t *testing.T) {
	var tl tail
	for i := range 2000 {
		fmt.Fprintf(&tl, "line %d\r\n", i)
	}
	got := tl.String()
	if len(got) > tailSize || !strings.HasSuffix(got, "line 1998\nline 1999") {
		t.Errorf("%d bytes that end with %q", len(got), got[max(0, len(got)-30):])
	}
}

func TestOutcome(t *testing.T) {
	report := func(code int) int { return (0x40|code)<<1 | 1 }
	cut, stop := context.WithCancelCause(t.Context())
	stop(errPowerCut)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	tests := []struct {
		name   string
		ctx    context.Context
		status int
		err    error
		code   int
		want   error
	}{
		{"success", t.Context(), report(0), nil, 0, nil},
		{"failure", t.Context(), report(2), nil, 2, nil},
		{"no report", t.Context(), 0, nil, 0, ErrNoReport},
		{"QEMU's own failure", t.Context(), 1, nil, 0, ErrNoReport},
		{"setup", t.Context(), report(63), nil, 0, ErrSetup},
		{"power cut", cut, -1, nil, 0, errPowerCut},
		{"timeout", late, -1, nil, 0, context.DeadlineExceeded},
		{"not started", t.Context(), 0, os.ErrNotExist, 0, os.ErrNotExist},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m machine
			m.console.Write([]byte("last words\r\n"))
			code, err := m.outcome(tt.ctx, tt.status, tt.err)
			if code != tt.code || !errors.Is(err, tt.want) {
				t.Errorf("outcome = %d, %v, want %d, %v", code, err, tt.code, tt.want)
			}
			if tt.want != nil && tt.want != errPowerCut && !strings.Contains(err.Error(), "last words") {
				t.Errorf("the error does not show the console: %v", err)
			}
		})
	}
}
