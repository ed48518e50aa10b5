package stats

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv names the directory for a file system of its own.
const insideEnv = "CULVERT_STATS_FULL"

// Where there is no memory left, transfers are counted all the same: to touch a
// mapping that the file system has no memory for would end the process.
func TestFullMemory(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestInsideFullMemory$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended || strings.Contains(string(out), "cannot mount") {
		t.Skipf("needs a user namespace with a file system of its own: %v\n%s", err, out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestInsideFullMemory") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInsideFullMemory is the other process of TestFullMemory.
func TestInsideFullMemory(t *testing.T) {
	dir := os.Getenv(insideEnv)
	if dir == "" {
		t.Skip("needs a parent: TestFullMemory starts it")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Fatalf("cannot mount: %v", err)
	}
	left := func() int {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return int(st.Bfree) * int(st.Bsize)
	}
	fill := func(name string, leave int) {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, max(left()-leave, 0)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	count := func(f *File) {
		f.Add(0, &Transfer{Route: 2, Bytes: 3})
		if sum := f.Totals(); sum.Bytes[0][2] != 3 {
			t.Errorf("the sums are %+v", sum)
		}
	}

	fill("full", headerSize+slotSize-4096)
	p := New([]string{dir}, routes)
	if _, err := p.Path(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a segment without memory: %v", err)
	}
	count(p.Attach("/data/none"))
	if names, _ := filepath.Glob(dir + "/culvert-*"); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}

	// Room for two files, and a third that finds none.
	fill("full", 0)
	if err := os.Remove(filepath.Join(dir, "full")); err != nil {
		t.Fatal(err)
	}
	fill("full", headerSize+3*slotSize)
	p = newProcess(t, dir)
	var files []*File
	for _, name := range []string{"/data/one", "/data/two", "/data/three"} {
		f := p.Attach(name)
		count(f)
		files = append(files, f)
	}
	check := func(names string) {
		t.Helper()
		before := left()
		s := read(t, p.path)
		if left() != before {
			t.Errorf("reading took %d bytes", before-left())
		}
		var got []string
		for _, f := range s.Files {
			got = append(got, f.Name)
		}
		if strings.Join(got, " ") != names || s.Totals.Bytes[0][2] != 9 {
			t.Errorf("%q, %+v, want %s", got, s.Totals, names)
		}
	}
	check("/data/one /data/two")
	// What is closed makes room; what was counted stays.
	p.Detach(files[0])
	p.Attach("/data/four")
	check("/data/four /data/two")
}
