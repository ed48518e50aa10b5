package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/internal/rdmabench"
	"github.com/culvert-io/culvert/rdma"
)

// Both ends of culvert rdma bench print the same row under perftest's header, and name
// the provider.
func TestRDMABench(t *testing.T) {
	o := rdmaBench{access: rdmaAccess{provider: "tcp"}, op: "read", size: "4K", iters: 30, depth: 4}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := o.run(t.Context(), nil, w)
		w.Close()
		done <- err
	}()
	server := bufio.NewReader(r)
	first, err := server.ReadString('\n')
	if err != nil {
		t.Fatal(err, <-done)
	}
	addr := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(first)
	served := make(chan []byte, 1)
	go func() {
		text, _ := io.ReadAll(server)
		served <- text
	}()
	var client bytes.Buffer
	if err := errors.Join(o.run(t.Context(), []string{addr}, &client), <-done); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^ READ BW Test   provider=tcp device=tcp0 depth=4\n #bytes .*\n 4096 +30 .*\n$`)
	if text := <-served; !want.Match(text) || client.String() != string(text) {
		t.Errorf("server:\n%s\nclient:\n%s", text, client.String())
	}
}

func TestRDMABenchOptions(t *testing.T) {
	for _, o := range []rdmaBench{
		{op: "atomic", size: "1K", iters: 1, depth: 1},
		{op: "write", size: "2G", iters: 1, depth: 1},
		{op: "write", size: "x", iters: 1, depth: 1},
		{op: "write", size: "1K", iters: -1, depth: 1},
		{op: "write", depth: 1, latency: true},
	} {
		if _, err := o.config(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

// Without a size and a number the defaults are perftest's.
func TestRDMABenchDefaults(t *testing.T) {
	for latency, want := range map[bool]rdmabench.Config{
		false: {Op: rdma.OpRead, Size: 64 << 10, Iterations: 5000, Depth: 128},
		true:  {Op: rdma.OpRead, Size: 2, Iterations: 1000, Depth: 128},
	} {
		o := rdmaBench{op: "read", depth: 128, latency: latency}
		if got, err := o.config(); got != want || err != nil {
			t.Errorf("latency %v: %+v, %v", latency, got, err)
		}
	}
}

// Only perftest's exchange on an adapter goes without a secret: verbs over TCP have one.
func TestRDMABenchSecret(t *testing.T) {
	for provider, wanted := range map[string]bool{"tcp": true, "ibverbs": false} {
		a := rdmaAccess{provider: provider, perftest: true}
		_, err := a.open(nil, "192.0.2.1")
		if err == nil || strings.Contains(err.Error(), "a token or TLS is needed") != wanted {
			t.Errorf("%s at an address of no interface: %v", provider, err)
		}
	}
}
