package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// huge makes a file that takes far longer to read than any test waits.
func huge(t *testing.T, path, head string) {
	t.Helper()
	err := os.WriteFile(path, []byte(head), 0o600)
	if err == nil {
		err = os.Truncate(path, 1<<40+int64(len(head)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// interrupt runs a command, sends it a signal when it says something that
// contains the text, or for "" when it has read a lot, and returns what it said.
func interrupt(t *testing.T, dir, when string, args ...string) string {
	t.Helper()
	cmd := exec.Command("culvert", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M,poison=1")
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		w.Close()
	}()
	var said bytes.Buffer
	var sent time.Time
	stop := func() {
		sent = time.Now()
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	if when == "" {
		for hasRead(t, cmd.Process.Pid) < 256<<20 && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		stop()
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		if sent.IsZero() && strings.Contains(lines.Text(), when) {
			stop()
		}
	}
	if err := <-ended; !endedBy(cmd, unix.SIGTERM) {
		t.Errorf("it ended with %v:\n%s", err, &said)
	}
	// A second is what is promised, on a machine that has nothing else to do. The
	// whole file would take hours.
	took := time.Since(sent)
	t.Logf("it ended after %v", took)
	if sent.IsZero() || took > 2*time.Minute {
		t.Errorf("it went on for %v:\n%s", took, &said)
	}
	return said.String()
}

// endedBy reports whether a signal ended a program.
func endedBy(cmd *exec.Cmd, s unix.Signal) bool {
	st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && st.Signaled() && st.Signal() == s
}

// A command that prints to nobody ends quietly and leaves nothing behind.
func TestNobodyReads(t *testing.T) {
	for _, args := range [][]string{{"demo"}, {"check", "--json"}, {"--help"}, {"bench", "file", "--bs", "4K", "--time", "1ms", "--repeat", "100000"}} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		var said bytes.Buffer
		cmd := exec.Command("culvert", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, &said
		cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M,poison=1", "TMPDIR="+dir)
		err = cmd.Run()
		w.Close()
		if cmd.ProcessState.ExitCode() != exitPipe || said.Len() != 0 {
			t.Errorf("%s: %v, and said %q", args, err, &said)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
			t.Errorf("%s left %v, %v", args, list, err)
		}
	}
}

// hasRead is how many bytes a process has read.
func hasRead(t *testing.T, pid int) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err == nil {
		_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	}
	if err != nil {
		t.Log(err)
	}
	return n
}

// leftovers are the names in a directory that begin with a dot.
func leftovers(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// A copy of a directory that is stopped has whole files and no others, and says
// how to go on; that way leads to the end.
func TestInterruptedCopyGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	if err := os.Mkdir(src, 0o700); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(src, "big")
	huge(t, big, "")
	if err := os.WriteFile(filepath.Join(src, "small"), []byte("small"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := interrupt(t, dir, "copied small", "cp", "-v", "src", "dst", "--verify")
	if !strings.Contains(said, "culvert: stopped with 1 of 2 files complete; to resume: culvert cp -v src dst --verify\n") {
		t.Errorf("it said:\n%s", said)
	}
	if names := leftovers(t, dst); !slices.Equal(names, []string{".big.culvert-part", ".culvert-cp.journal"}) {
		t.Errorf("left behind: %q", names)
	}
	if _, err := os.Lstat(filepath.Join(dst, "big")); err == nil {
		t.Error("a part of a file has its name")
	}
	if err := os.Truncate(big, 100_000); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("culvert", "cp", "src", "dst", "--verify")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), ": 1 file, 0 B in ") || !strings.Contains(string(out), "97.7 KiB of holes") || !strings.Contains(string(out), "1 file done before") {
		t.Errorf("going on: %v\n%s", err, out)
	}
	if names := leftovers(t, dst); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

// A load that is stopped says so.
func TestInterruptedLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const each, count = 64 << 20, 4000
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, `,"layers.%d.w":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, i, each, i*each, (i+1)*each)
	}
	text := "{" + b.String()[1:] + "}"
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	path := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(path, append(head, text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(head)+len(text)+each*count)); err != nil {
		t.Fatal(err)
	}
	said := interrupt(t, dir, "", "load", "model.safetensors", "gpu:0", "--window", "128M")
	if !strings.Contains(said, "culvert: stopped; to start again: culvert load model.safetensors gpu:0") {
		t.Errorf("it said:\n%s", said)
	}
}

// A command that waits for something that cannot be stopped, here for the writer
// of a pipe, ends by the second signal.
func TestSecondSignalEnds(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "disk"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("culvert", "nvme", "write", "soft:disk", "pipe")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	late := time.After(2 * time.Minute)
	for {
		select {
		case <-again.C:
			_ = cmd.Process.Signal(unix.SIGINT)
		case <-ended:
			return
		case <-late:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatal("it did not end")
		}
	}
}
