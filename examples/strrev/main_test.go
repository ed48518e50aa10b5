package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	const text, reversed = "Hello, GDS World!", "!dlroW SDG ,olleH"
	if err := os.WriteFile("test.txt", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m := softtest.New(t, soft.Config{Memory: 64 << 20, Zero: true})
	for _, want := range []string{reversed, text} {
		var out bytes.Buffer
		if err := run(t.Context(), &out, m, "test.txt"); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != "sys_len : 17\n"+want+"\nSee also test.txt\n" {
			t.Errorf("printed\n%s", got)
		}
		if got, err := os.ReadFile("test.txt"); err != nil || string(got) != want {
			t.Errorf("the file is %q, %v; want %q", got, err, want)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Chdir(t.TempDir())
	m := softtest.New(t, soft.Config{Memory: 64 << 20, Zero: true})
	var out bytes.Buffer
	if err := run(t.Context(), &out, m, "none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile("test.txt", []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	softtest.Break(t, m, "errno=EIO,call=write")
	if err := run(t.Context(), &out, m, "test.txt"); !errors.Is(err, unix.EIO) {
		t.Errorf("the write fails: %v", err)
	}
}
