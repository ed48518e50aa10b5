package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/culvert-io/culvert/internal/human"
	"github.com/culvert-io/culvert/internal/stats"
	"github.com/culvert-io/culvert/internal/watch"
)

var updateScreens = flag.Bool("update", false, "write the golden screens")

// A shot is a command whose screen is compared with testdata/screens/NAME.txtar.
type shot struct {
	name string
	line string // words of the command line, after variables; ADDRESS is that of a server
}

var shots = []shot{
	{"help", "--help"},
	{"help-cp", "cp --help"},
	{"check", "check model.bin gpu:0"},
	{"check-declined", "CULVERT_SOFT=memory=256M,stack=crypt+raid1 check model.bin gpu:0"},
	{"check-verbose", "check model.bin gpu:0 -v"},
	{"check-model", "check weights.safetensors"},
	{"check-drive", "check nvme://soft:model.bin"},
	{"cp", "cp model.bin copy.bin"},
	{"cp-verbose", "cp model.bin copy.bin -v --route ring --verify"},
	{"cp-tree", "cp tree copy"},
	{"cp-plan", "cp tree copy --dry-run"},
	{"bench", "bench model.bin --bs 4K,64K --size 128K --peer pread"},
	{"load", "load weights.safetensors gpu:0"},
	{"save", "save weights.safetensors saved.safetensors"},
	{"ls", "ls weights.safetensors"},
	{"verify", "verify --create weights.safetensors"},
	{"tune", "tune --show"},
	{"rdma-read", "rdma read ADDRESS tree/a/one.bin copy.bin"},
	{"error-missing", "cp nothing.bin copy.bin"},
	{"error-flag", "load --gpu 1 weights.safetensors"},
	{"error-route", "cp model.bin copy.bin --require-route vendor"},
	{"error-terminal", "cp model.bin -"},
	{"error-damaged", "verify model.bin"},
}

// TestScreens compares what commands print on terminals of 40, 80 and 200 columns. The
// screen with colours must have the same text; in 80 columns its colours are compared,
// too, and plain ASCII.
func TestScreens(t *testing.T) {
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skip("needs pseudo terminals")
	}
	address := serveFixture(t)
	for _, s := range shots {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.line = strings.ReplaceAll(s.line, "ADDRESS", address)
			var got txtar.Archive
			for _, width := range []int{40, 80, 200} {
				text := s.take(t, width, "NO_COLOR=1")
				checkWidth(t, text, width)
				if n := strings.Count(text, "\n"); width >= 80 && n > 23 && strings.Contains(s.line, "check ") && !strings.Contains(s.line, " -v") {
					t.Errorf("%d lines and a prompt are more than a screen of 24:\n%s", n, text)
				}
				got.Files = append(got.Files, txtar.File{Name: fmt.Sprint(width), Data: []byte(text)})
				coloured := s.take(t, width, "TERM=xterm")
				if plain := colours.ReplaceAllString(coloured, ""); plain != text {
					t.Errorf("%d columns: colours change the text (-plain +coloured):\n%s", width, cmp.Diff(text, plain))
				}
				if width == 80 {
					got.Files = append(got.Files, txtar.File{Name: "80 with colours", Data: []byte(colours.ReplaceAllStringFunc(coloured, nameColour))})
				}
			}
			text := s.take(t, 80, "LC_ALL=C")
			if i := strings.IndexFunc(colours.ReplaceAllString(text, ""), func(r rune) bool { return r > 0x7e }); i >= 0 {
				t.Errorf("not ASCII: %q", text[i:])
			}
			got.Files = append(got.Files, txtar.File{Name: "80 in ASCII", Data: []byte(colours.ReplaceAllString(text, ""))})
			compareScreens(t, s.name, &got)
		})
	}
}

func compareScreens(t *testing.T, name string, got *txtar.Archive) {
	t.Helper()
	path := filepath.Join("testdata/screens", name+".txtar")
	text := string(txtar.Format(got))
	if *updateScreens {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got; go test -run TestScreens -update writes it):\n%s", path, diff)
	}
}

// checkWidth finds lines that a terminal would break: all but single words.
func checkWidth(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n := utf8.RuneCountInString(line); n > width && strings.Contains(line, " ") {
			t.Errorf("%d of %d columns: %s", n, width, line)
		}
	}
}

var colours = regexp.MustCompile(`\x1b\[\d*m`)

func nameColour(s string) string {
	return map[string]string{
		"\x1b[0m": "{}", "\x1b[2m": "{dim}", "\x1b[31m": "{red}", "\x1b[32m": "{green}", "\x1b[33m": "{yellow}", "\x1b[36m": "{cyan}",
	}[s]
}

// take runs the command in a new directory, on a terminal of that width.
func (s shot) take(t *testing.T, width int, environment ...string) string {
	t.Helper()
	dir := fixture(t)
	words := strings.Fields(s.line)
	var variables []string
	for strings.Contains(words[0], "=") {
		variables, words = append(variables, words[0]), words[1:]
	}
	cmd := exec.Command("screened", words...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8", "CULVERT_MACHINE=soft", "CULVERT_SOFT=memory=256M", "CULVERT_LOG=",
		"XDG_CACHE_HOME="+filepath.Join(dir, ".cache"), "XDG_RUNTIME_DIR="+dir, "TMPDIR="+dir, "SCREEN_DIRECTORY="+dir)
	cmd.Env = append(append(cmd.Env, environment...), variables...)
	text, err := onTerminal(cmd, width)
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return text
}

// fixture makes a directory with a file, a tree, a model and results of tune.
func fixture(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	a, err := txtar.ParseFile("testdata/screens/fixture/files.txtar")
	if err != nil {
		t.Fatal(err)
	}
	a.Files = append(a.Files,
		txtar.File{Name: "model.bin", Data: bytes.Repeat([]byte("culvert "), 1<<17)},
		txtar.File{Name: "weights.safetensors", Data: model()})
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.Data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// model is a safetensors file whose tensors do not begin at whole blocks.
func model() []byte {
	header := `{"model.layers.0.self_attn.q_proj.weight":{"dtype":"BF16","shape":[64,64],"data_offsets":[0,8192]},` +
		`"model.layers.0.mlp.up_proj.weight":{"dtype":"BF16","shape":[256,64],"data_offsets":[8192,40960]},` +
		`"model.norm.weight":{"dtype":"F32","shape":[64],"data_offsets":[40960,41216]}}`
	out := []byte{byte(len(header)), byte(len(header) >> 8), 0, 0, 0, 0, 0, 0}
	return append(append(out, header...), make([]byte, 41216)...)
}

// serveFixture serves the tree to other hosts, and returns the address.
func serveFixture(t *testing.T) string {
	t.Helper()
	dir := fixture(t)
	cmd := exec.Command("culvert", "rdma", "serve", "tree", "-p", "0")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CULVERT_MACHINE=soft")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGTERM); _ = cmd.Wait() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	if err != nil || address == "" {
		t.Fatalf("%q: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return address
}

// onTerminal runs a command on a terminal and returns what is on it at the end.
func onTerminal(cmd *exec.Cmd, width int) (string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: uint16(width)})
	}
	if err != nil {
		return "", err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = errors.Join(cmd.Start(), slave.Close())
	if err != nil {
		return "", err
	}
	raw, _ := io.ReadAll(master) // EIO when the last user of the terminal has gone
	return settled(string(raw)), cmd.Wait()
}

// Progress goes up by as many lines as it has, and then writes over all of them or clears them.
var erased = regexp.MustCompile(`\x1b\[(\d+)A\r`)

// settled is what is left on a screen after lines were drawn and erased.
func settled(raw string) string {
	for {
		at := erased.FindStringSubmatchIndex(raw)
		if at == nil {
			return strings.NewReplacer("\x1b[K", "", "\x1b[J", "", "\r\n", "\n").Replace(raw)
		}
		var n int
		fmt.Sscan(raw[at[2]:at[3]], &n)
		before := raw[:at[0]]
		for range n + 1 {
			before = before[:max(strings.LastIndexByte(before, '\n'), 0)]
		}
		if before != "" {
			before += "\n"
		}
		raw = before + raw[at[1]:]
	}
}

// screened is culvert with fixed numbers in place of what it measures, so that lines are
// always folded alike.
func screened() {
	dir := os.Getenv("SCREEN_DIRECTORY")
	measured = func(w io.Writer) io.Writer { return fixedWriter{w, dir} }
	main()
}

// fixed replaces what differs between runs and computers. Amounts, routes and reasons stay.
var fixed = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\b\d+(\.\d+)? (ns|µs|ms|s)\b`), "9.99 ms"},
	{regexp.MustCompile(`(?m)\b\d+(\.\d+)? [kMG]?B/s(,|$| SOFTWARE| provider)`), "9.99 GB/s$2"},
	{regexp.MustCompile(`time=[\d.]+[nµm]?s rate=[\d.]+[kMG]?B/s`), "time=9.99ms rate=9.999GB/s"},
	{regexp.MustCompile(`share=[\d.]+`), "share=0.0999"},
	{regexp.MustCompile(`link [\d.]+ GB/s`), "link 9.99 GB/s"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:99999"},
	// The file system, kernel and limits of this computer.
	{regexp.MustCompile(` on \S+ at \S+ \(\S+\)`), " on FILESYSTEM at MOUNT (DEVICE)"},
	{regexp.MustCompile(`O_DIRECT: .*`), "O_DIRECT: true, offset alignment 512, memory alignment 512 (statx)"},
	{regexp.MustCompile(`(?s)(kernel   )[^\n]*(\n\nTHIS COMPUTER\n).*(\n\nSOFTWARE MACHINE)`), "${1}VERSION${2}(left out)${3}"},
	{regexp.MustCompile(`(cache=hit:)\d+,filled:\d+,bypassed:\d+`), "${1}1048576,filled:0,bypassed:0"},
}

// benchRow has results in columns of fixed width, which stay as wide.
var benchRow = regexp.MustCompile(`(?m)^((?:culvert|pread) +\S+ +\d+K(?: +1)*)((?: +(?:[\d.]+(?:µs|ms|s|%)?|-|>999%))+)$`)

var benchCell = regexp.MustCompile(` +>?[\d.]+(µs|ms|s|%)?`)

type fixedWriter struct {
	w   io.Writer
	dir string
}

func (f fixedWriter) Write(p []byte) (int, error) {
	text := strings.ReplaceAll(string(p), f.dir, "/data")
	for _, r := range fixed {
		if strings.Contains(text, "└─ gpu:0") && strings.Contains(r.with, "GB/s") {
			continue // the links of a drawing are not measured
		}
		text = r.what.ReplaceAllString(text, r.with)
	}
	text = benchRow.ReplaceAllStringFunc(text, func(row string) string {
		m := benchRow.FindStringSubmatch(row)
		return m[1] + benchCell.ReplaceAllStringFunc(m[2], func(cell string) string { return fmt.Sprintf("%*s", utf8.RuneCountInString(cell), "9.99") })
	})
	if _, err := io.WriteString(f.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestStatsScreens compares what depends on other processes, from fixed numbers.
func TestStatsScreens(t *testing.T) {
	totals := stats.Totals{Host: 3 << 20, Errors: 1, Time: 1234 * time.Millisecond}
	totals.Ops[0][2], totals.Bytes[0][2] = 640, 640<<20
	totals.Ops[1][3], totals.Bytes[1][3] = 3, 3<<20
	list := []*stats.Snapshot{
		{
			PID: 4711, UID: 1000, Command: "python3 serve.py --model /srv/models/llama-70b --port 8000", Alive: true, Routes: []string{"none", "vendor", "nvfs", "ring"}, Totals: totals,
			Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), Files: []stats.FileSnapshot{{Name: "/srv/models/llama-70b/model-00001-of-00030.safetensors", Open: true, Totals: totals}},
		},
		{PID: 815, Command: "culvert cp a b", Routes: []string{"none"}},
	}
	report := &watch.Report{
		Program: []string{"./train", "--steps", "100"}, Engine: "culvert", Status: 1, Processes: []watch.Process{{PID: 7, Command: "./train", Calls: 12}},
		Files: []watch.File{{
			Path: "/data/shard-00001.bin", Read: watch.Direction{Calls: 10, Bytes: 10 << 20, Failed: 1, Sizes: map[string]int64{"1048576": 10}, P50: 812, P95: 1500, P99: 1900},
			Routes: []watch.RouteBytes{{Route: "nvfs", Bytes: 9 << 20}, {Route: "host", Bytes: 1 << 20}}, Host: 1 << 20, Evidence: "counted", DirectShare: 0.9,
			Declined: []string{"vendor: machine: NVIDIA's libcufile does not support the software machine"}, Errors: []watch.Code{{Code: 5, Meaning: "EIO: input/output error", Count: 1}},
		}},
		Failures: []watch.Failure{{Function: "cuFileRead", Code: watch.Code{Code: 5, Meaning: "EIO: input/output error", Count: 1}}},
		Notes:    []string{"asynchronous requests are those of batches and streams; they are counted when they are made, not when they end"},
	}
	for name, print := range map[string]func(io.Writer) error{
		"stats":         func(w io.Writer) error { return printProcesses(w, list) },
		"stats-process": func(w io.Writer) error { return show(w, false, newStatsResult(list[0])) },
		"run-report":    func(w io.Writer) error { return show(w, false, report) },
	} {
		var got txtar.Archive
		for _, width := range []int{40, 80, 200} {
			var b strings.Builder
			s := &screen{width: width, fold: human.NewFoldWriter(&b, width)}
			s.w = s.fold
			if err := errors.Join(print(s), s.flush()); err != nil {
				t.Fatal(err)
			}
			checkWidth(t, b.String(), width)
			got.Files = append(got.Files, txtar.File{Name: fmt.Sprint(width), Data: []byte(b.String())})
		}
		compareScreens(t, name, &got)
	}
}
