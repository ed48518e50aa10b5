package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const greeting = `{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}`

// fake answers each command line with the lines that answer returns; a nil
// answer hangs up.
func fake(t *testing.T, answer func(name string, id uint64) []string) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer theirs.Close()
		fmt.Fprintln(theirs, greeting)
		sc := bufio.NewScanner(theirs)
		for sc.Scan() {
			var c struct {
				Execute string
				ID      uint64
			}
			if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
				t.Error(err)
				return
			}
			lines := []string{fmt.Sprintf(`{"return": {}, "id": %d}`, c.ID)}
			if c.Execute != "qmp_capabilities" {
				lines = answer(c.Execute, c.ID)
			}
			if lines == nil {
				return
			}
			for _, l := range lines {
				fmt.Fprintln(theirs, l)
			}
		}
	}()
	c, err := New(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); <-served })
	return c
}

func TestExecute(t *testing.T) {
	c := fake(t, func(name string, id uint64) []string {
		switch name {
		case "device_del":
			return []string{
				`{"event": "DEVICE_DELETED", "data": {"device": "other"}, "timestamp": {"seconds": 1, "microseconds": 2}}`,
				fmt.Sprintf(`{"return": {"n": 7}, "id": %d}`, id),
				`{"event": "DEVICE_DELETED", "data": {"device": "nv1"}}`,
			}
		default:
			return []string{fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "no %s"}, "id": %d}`, name, id)}
		}
	})
	got, err := c.Execute(t.Context(), "device_del", map[string]string{"id": "nv1"})
	if err != nil || string(got) != `{"n": 7}` {
		t.Errorf("Execute = %s, %v", got, err)
	}
	ev, err := c.Await(t.Context(), func(e Event) bool { return string(e.Data) == `{"device": "nv1"}` })
	if err != nil || ev.Name != "DEVICE_DELETED" {
		t.Errorf("Await = %v, %v", ev, err)
	}
	// An event that has passed is still found.
	if _, err := c.Await(t.Context(), func(e Event) bool { return string(e.Data) == `{"device": "other"}` }); err != nil {
		t.Error(err)
	}
	_, err = c.Execute(t.Context(), "nonsense", nil)
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Class != "CommandNotFound" || refusal.Desc != "no nonsense" {
		t.Errorf("refused command: %v", err)
	}
}

func TestHangUp(t *testing.T) {
	c := fake(t, func(string, uint64) []string { return nil })
	if _, err := c.Execute(t.Context(), "quit", nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Execute after a hang-up: %v", err)
	}
	if _, err := c.Await(t.Context(), func(Event) bool { return true }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Await after a hang-up: %v", err)
	}
}

func TestCancel(t *testing.T) {
	c := fake(t, func(string, uint64) []string { return []string{} })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Execute(ctx, "stop", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Execute without an answer: %v", err)
	}
	if _, err := c.Await(ctx, func(Event) bool { return true }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await without an event: %v", err)
	}
}

func TestNoGreeting(t *testing.T) {
	for _, first := range []string{"", "hello\n", `{"return": {}}` + "\n"} {
		ours, theirs := net.Pipe()
		go func() {
			io.WriteString(theirs, first)
			theirs.Close()
		}()
		if _, err := New(t.Context(), ours); err == nil {
			t.Errorf("%q was taken for a greeting", first)
		}
		ours.Close()
	}
}

type script struct {
	io.Reader
	io.Writer
}

func (script) Close() error { return nil }

// Whatever QEMU says, the client neither panics nor hangs.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(greeting + `{"return": {}, "id": 1}{"event": "STOP"}`))
	f.Add([]byte(greeting + greeting + `{"error": {}, "id": 1}`))
	f.Add([]byte(`{"id": -1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, w := io.Pipe()
		go func() { w.Write(b); w.Close() }()
		c, err := New(t.Context(), script{r, io.Discard})
		if err == nil {
			c.Await(t.Context(), func(Event) bool { return false })
			c.Close()
		}
		r.Close()
	})
}
