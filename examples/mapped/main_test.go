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
	want := regexp.MustCompile(`^allocated by the driver:
  host_pointer = 0x[0-9a-f]+, device_pointer = 0x[0-9a-f]+
  culvert -> trevluc, 7 bytes
registered in place:
  host_pointer = 0x[0-9a-f]+, device_pointer = 0x[0-9a-f]+
  stream -> maerts, 6 bytes
$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s", out.Bytes())
	}
}
