package main

import (
	"bytes"
	"regexp"
	"testing"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^context = 0x[0-9a-f]+
device_memory_pointer = 0x[0-9a-f]+
host_page_locked_memory = 0x[0-9a-f]+
host_page_locked_memory\[0\] = 123\.000000
host_page_locked_memory\[0\] = 555\.000000
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s", out.Bytes())
	}
}
