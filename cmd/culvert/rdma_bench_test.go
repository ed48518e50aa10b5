package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"testing"
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
		{op: "send", size: "1K", iters: 1, depth: 1},
		{op: "write", size: "2G", iters: 1, depth: 1},
		{op: "write", size: "x", iters: 1, depth: 1},
		{op: "write", size: "1K", iters: 0, depth: 1},
	} {
		if _, err := o.config(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}
