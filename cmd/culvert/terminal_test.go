package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A pane is a terminal that tmux shows.
type pane struct {
	t      *testing.T
	socket string
	width  int
}

// newPane runs a command line of the shell in a terminal of that width, with the soft
// machine. The terminal stays when the command has ended.
func newPane(t *testing.T, width int, dir, line string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("needs tmux")
	}
	p := &pane{t, filepath.Join(t.TempDir(), "tmux"), width}
	line = fmt.Sprintf("trap : INT; cd %s; %s; echo ended; exec cat", dir, line)
	cmd := exec.Command("tmux", "-S", p.socket, "-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", "24", "sh", "-c", line)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M", "XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

func (p *pane) keys(names ...string) {
	p.t.Helper()
	if out, err := exec.Command("tmux", append([]string{"-S", p.socket, "send-keys", "-t", "0"}, names...)...).CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
}

// await returns the screen as soon as it has all of the texts, and fails if a line is
// wider than the terminal has columns.
func (p *pane) await(texts ...string) string {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.Command("tmux", "-S", p.socket, "capture-pane", "-p", "-t", "0").Output()
		if err != nil {
			p.t.Fatal(err)
		}
		missing := ""
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				missing = text
			}
		}
		if missing == "" {
			for line := range strings.Lines(string(out)) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > p.width {
					p.t.Errorf("%d of %d columns: %s", n, p.width, line)
				}
			}
			return string(out)
		}
		if time.Now().After(end) {
			p.t.Fatalf("%q does not appear on\n%s", missing, out)
		}
	}
}

// slowTree is a directory with files whose copy at 1 MB/s takes a while.
func slowTree(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		if err := os.MkdirAll(filepath.Join(dir, "tree"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tree", name), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The progress of a copy shows bar, rest and files on each terminal, whatever their names,
// and is gone when a signal ends the copy.
func TestProgressOnTerminal(t *testing.T) {
	for _, width := range []int{40, 80, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			dir := slowTree(t)
			wide := filepath.Join(dir, "tree", strings.Repeat("模型", 30)+".bin") // letters of two columns each
			if err := os.WriteFile(wide, make([]byte, 2<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			p := newPane(t, width, dir, "yes x | head -c 4194304 >tree/a.bin; culvert cp tree copy --limit-rate 1M")
			screen := p.await("░", "0 of 4 files after", " * a.bin: ", "2.safetensors: ", "模型.bin: ")
			for line := range strings.Lines(screen) {
				if (strings.Contains(line, " * ") || strings.Contains(line, "MiB")) && !strings.Contains(line, "ETA ") {
					t.Errorf("no ETA: %s", line)
				}
			}
			p.keys("C-c")
			if screen := p.await("ended"); strings.Contains(screen, "ETA") || strings.Contains(screen, "░") {
				t.Errorf("the progress stays:\n%s", screen)
			}
		})
	}
}

// With --verbose each file has a line that stays, and the progress is below it.
func TestVerboseOnTerminal(t *testing.T) {
	dir := slowTree(t)
	p := newPane(t, 80, dir, "echo small >tree/a; culvert cp tree copy --jobs 1 --limit-rate 1M -v")
	p.await("copied a 6 B in ", " (1 of 3)", "of 3 files after")
	p.keys("C-c")
	if screen := p.await("ended"); !strings.Contains(screen, "copied a 6 B in ") || strings.Contains(screen, "ETA") {
		t.Errorf("the line of the file is gone, or the progress is not:\n%s", screen)
	}
}

// top shows what another process reads, obeys its keys, and leaves the screen as it was.
func TestTopOnTerminal(t *testing.T) {
	dir := slowTree(t)
	if err := os.Rename(filepath.Join(dir, "tree/model-00001-of-00002.safetensors"), filepath.Join(dir, "watched.bin")); err != nil {
		t.Fatal(err)
	}
	newPane(t, 80, dir, "culvert bench watched.bin --bs 64K --time 10m --limit-rate 10M")
	for _, width := range []int{40, 80, 200} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			p := newPane(t, width, dir, "echo before; culvert top --filter watched.bin --interval 100ms")
			screen := p.await("culvert top  ", "watched.bin", "READ/s", "q quit")
			if wide := strings.Contains(screen, "HISTORY"); wide != (width >= 80) {
				t.Errorf("a history in %d columns: %t\n%s", width, wide, screen)
			}
			p.keys("Down", "Enter")
			p.await("file      ", "latency   ", "esc back")
			p.keys("Escape")
			p.await("READ/s")
			p.keys("/", "z", "z")
			p.await("No process or file matches the filter.", "filter: watched.binzz_")
			p.keys("Escape")
			p.await("q quit")
			p.keys("q")
			if screen := p.await("ended"); !strings.Contains(screen, "before") || strings.Contains(screen, "READ/s") {
				t.Errorf("top does not restore the screen:\n%s", screen)
			}
		})
	}
}
