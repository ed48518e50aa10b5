package rdmabench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-io/culvert/internal/abi/perftest"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
)

// connected returns both ends of a connection.
func connected(t *testing.T) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func device(t *testing.T) rdma.Device {
	t.Helper()
	p, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

type result struct {
	perftest.Report
	err error
}

// Both ends have the client's result, or of messages each its own, and every object is closed.
func TestRun(t *testing.T) {
	for _, op := range []rdma.Opcode{rdma.OpWrite, rdma.OpRead, rdma.OpSend} {
		c, s := connected(t)
		cfg := Config{Op: op, Size: 5000, Iterations: 40, Depth: 8}
		served := make(chan result, 1)
		dev := device(t)
		go func() {
			r, err := Run(t.Context(), s, false, dev, cfg)
			served <- result{r, err}
		}()
		r, err := Run(t.Context(), c, true, device(t), cfg)
		other := <-served
		if err != nil || other.err != nil {
			t.Fatal(op, err, other.err)
		}
		if op != rdma.OpSend && r != other.Report {
			t.Errorf("%v: client %+v, server %+v", op, r, other.Report)
		}
		for end, r := range map[string]perftest.Report{"client": r, "server": other.Report} {
			if r.Size != 5000 || r.Iterations != 40 || r.Average <= 0 || r.Peak < r.Average {
				t.Errorf("%v: %s %+v", op, end, r)
			}
		}
	}
}

// A peer that is no perftest of this version gets an error, at once.
func TestOtherPeers(t *testing.T) {
	version := append([]byte(perftest.Version), make([]byte, 12)...)
	settings := []byte{0, 0, 16, 0, 0, 0, 0, 64}
	for what, tt := range map[string]struct {
		sent []byte
		want string
	}{
		"another version":   {append([]byte("5.60"), make([]byte, 12)...), "the peer's version is \"5.60\""},
		"a large cycle":     {append(version[:16:16], 0xff, 0xff, 0xff, 0xff), "exceeds"},
		"no MTU":            {append(append(version[:16:16], settings...), 'x', 0), "must be a digit"},
		"a short greeting":  {version[:3], "EOF"},
		"no queue pair":     {append(append(append(version[:16:16], settings...), '5', 0), bytes.Repeat([]byte{'x'}, perftest.SizeGID)...), "description"},
		"nothing but a GID": {append(append(append(version[:16:16], settings...), '5', 0), "00"...), "EOF"},
	} {
		c, s := connected(t)
		go func() {
			_, _ = c.Write(tt.sent)
			_ = c.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}()
		if _, err := Run(t.Context(), s, false, device(t), Config{Op: rdma.OpWrite, Size: 8, Iterations: 1, Depth: 1}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", what, err, tt.want)
		}
	}
}

// The client has the latencies, and the server has answered every message.
func TestLatency(t *testing.T) {
	for _, op := range []rdma.Opcode{rdma.OpRead, rdma.OpSend} {
		c, s := connected(t)
		cfg := Config{Op: op, Size: 2, Iterations: 50}
		served := make(chan error, 1)
		near, far := device(t), device(t)
		go func() {
			got, err := Latency(t.Context(), s, false, far, cfg)
			if got != (Times{}) {
				err = errors.Join(err, fmt.Errorf("the server has measured %v", got))
			}
			served <- err
		}()
		got, err := Latency(t.Context(), c, true, near, cfg)
		if err := errors.Join(err, <-served); err != nil {
			t.Fatal(op, err)
		}
		if got.Size != 2 || got.Iterations != 50 || got.Min <= 0 || got.Typical < got.Min || got.P99 < got.Typical || got.P999 < got.P99 || got.Max < got.P999 {
			t.Errorf("%v: %+v", op, got)
		}
	}
	c, _ := connected(t)
	if _, err := Latency(t.Context(), c, true, device(t), Config{Op: rdma.OpWrite, Size: 2, Iterations: 1}); err == nil {
		t.Error("the latency of WRITE was measured")
	}
}

// A message takes half of the time until the answer is there; a READ takes all of it.
func TestHalfARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &end{cfg: Config{Iterations: 2}}
		for ways, want := range map[time.Duration]time.Duration{1: 5 * time.Millisecond, 2: 10 * time.Millisecond} {
			took, err := e.repeat(ways, func() error { time.Sleep(10 * time.Millisecond); return nil })
			if err != nil || !slices.Equal(took, []time.Duration{want, want}) {
				t.Errorf("%d ways: %v, %v", ways, took, err)
			}
		}
	})
}

func TestTimes(t *testing.T) {
	var took []time.Duration
	for i := range time.Duration(1000) {
		took = append(took, (1000-i)*time.Microsecond)
	}
	got := times(2, took)
	const us = time.Microsecond
	want := Times{Size: 2, Iterations: 1000, Min: us, Max: 1000 * us, Typical: 501 * us, Average: 500500, Deviation: 288674, P99: 991 * us, P999: 1000 * us}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if one := times(2, []time.Duration{us}); one.Min != us || one.P999 != us || one.Deviation != 0 {
		t.Errorf("of one: %+v", one)
	}
	// A line that ib_read_lat printed.
	const line = " 2       20          121.41         328.58       247.19   \t       238.32      \t44.68  \t\t328.58  \t\t328.58 "
	printed := Times{Size: 2, Iterations: 20, Min: 121410, Max: 328580, Typical: 247190, Average: 238320, Deviation: 44680, P99: 328580, P999: 328580}
	if got := printed.String(); got != line {
		t.Errorf("%q, want %q", got, line)
	}
}

// A sender that goes away before its messages is noticed, although no queue pair tells.
func TestSenderGone(t *testing.T) {
	c, s := connected(t)
	cfg := Config{Op: rdma.OpSend, Size: 8, Iterations: 3, Depth: 2}
	served := make(chan error, 1)
	near, far := device(t), device(t)
	go func() {
		_, err := Run(t.Context(), s, false, far, cfg)
		served <- err
	}()
	x := newExchange(c, true)
	port, err := near.Port(1)
	if err != nil {
		t.Fatal(err)
	}
	cycle, mtu, err := x.greet(port.ActiveMTU)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEnd(near, cfg, cycle)
	if err != nil {
		t.Fatal(err)
	}
	own, _, err := e.connect(x, port, mtu)
	for range 3 { // barriers
		_, again := x.endpoint(own)
		err = errors.Join(err, again)
	}
	if err := errors.Join(err, e.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err == nil || !strings.Contains(err.Error(), "wait for the peer") {
		t.Errorf("the server's error is %v", err)
	}
}

// A canceled context ends a wait for the peer.
func TestCancel(t *testing.T) {
	_, s := connected(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, s, false, device(t), Config{Op: rdma.OpWrite, Size: 8, Iterations: 1, Depth: 1}); err == nil || ctx.Err() == nil {
		t.Errorf("a canceled test = %v", err)
	}
}

func TestReport(t *testing.T) {
	w := newWindow(2)
	for _, at := range []time.Duration{10, 20, 30, 35, 100} {
		w.add(at * time.Millisecond)
	}
	if w.shortest != 15*time.Millisecond {
		t.Errorf("the shortest time of 2 is %v, want 15ms (20 to 35)", w.shortest)
	}
	r := report(Config{Size: 1 << 20, Iterations: 10, Depth: 3}, 2*time.Second, time.Second/2)
	if want := (perftest.Report{Size: 1 << 20, Iterations: 10, Peak: 6, Average: 5, Messages: 5e-6}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	// A line that ib_write_bw printed.
	const line = " 65536      200              1465.16            1465.16\t\t   0.023443"
	if got := Row(perftest.Report{Size: 65536, Iterations: 200, Peak: 1465.16, Average: 1465.16, Messages: 0.023443}); got != line {
		t.Errorf("%q, want %q", got, line)
	}
}

func TestCheck(t *testing.T) {
	good := Config{Op: rdma.OpRead, Size: 1, Iterations: 1, Depth: 1}
	for what, change := range map[string]func(*Config){
		"op": func(c *Config) { c.Op = rdma.OpFetchAdd }, "size": func(c *Config) { c.Size = 0 }, "large": func(c *Config) { c.Size = 1<<30 + 1 },
		"iterations": func(c *Config) { c.Iterations = 0 }, "depth": func(c *Config) { c.Depth = 9000 },
	} {
		c := good
		change(&c)
		if c.Check() == nil {
			t.Errorf("%s: %+v was accepted", what, c)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}
