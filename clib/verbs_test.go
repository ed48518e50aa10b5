package clib_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestVerbs: a C program registers memory of cuMemAlloc by address and as a dma-buf, and
// another process writes into it.
func TestVerbs(t *testing.T) {
	lib := libraries(t)
	r := run(t, lib, compile(t, "verbs.c", "-libverbs"))
	// The lines of two processes; each has its own order.
	lines := strings.SplitAfter(r.stdout, "\n")
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(before(a), before(b)) })
	golden(t, "verbs.txt", strings.Join(lines, ""))
	if r.status != 0 || r.stderr != "" {
		t.Errorf("status %d, stderr %q", r.status, r.stderr)
	}
}

func before(line string) string {
	role, _, _ := strings.Cut(line, ":")
	return role
}

// TestVerbsLayout: our header has the layouts of rdma-core's, which were recorded, and
// are compared where it is installed.
func TestVerbsLayout(t *testing.T) {
	r := run(t, libraries(t), compile(t, "verbs_layout.c"))
	golden(t, "verbs_layout.txt", r.stdout)
	t.Run("rdma-core", func(t *testing.T) {
		exe := filepath.Join(t.TempDir(), "layout")
		if out, err := exec.Command("gcc", "-o", exe, "testdata/verbs_layout.c").CombinedOutput(); err != nil {
			t.Skipf("needs rdma-core's header (apt-get install libibverbs-dev): %s", out)
		}
		out, err := exec.Command(exe).Output()
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "rdma-core's header", r.stdout, string(out))
	})
}

// TestVerbsSymbols: every symbol of the version script is defined, with its version.
func TestVerbsSymbols(t *testing.T) {
	lib := filepath.Join(libraries(t), "soft", "libibverbs.so.1")
	script, err := os.ReadFile("shim/verbs.map")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	node := ""
	for line := range strings.Lines(string(script)) {
		if m := regexp.MustCompile(`^(IBVERBS_\S+) \{`).FindStringSubmatch(line); m != nil {
			node = m[1]
		} else if m := regexp.MustCompile(`^    (\w+);`).FindStringSubmatch(line); m != nil {
			want = append(want, m[1]+"@@"+node)
		}
	}
	out, err := exec.Command("nm", "-D", "--defined-only", lib).Output()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if name := f[len(f)-1]; !strings.HasPrefix(name, "IBVERBS_") {
			got = append(got, name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	diff(t, lib, strings.Join(got, "\n"), strings.Join(want, "\n"))
}

// TestPerftest runs Debian's perftest and ibverbs-utils, unmodified, between two
// processes.
func TestPerftest(t *testing.T) {
	libraries(t)
	for _, tt := range []struct {
		name string
		args []string
		want string // of the client's output
	}{
		{"ib_write_bw", []string{"-n", "100"}, `(?m)^ 65536 +100 `},
		{"ib_write_bw", []string{"-n", "20", "-q", "2", "-b"}, `(?m)^ 65536 +40 `},
		{"ib_read_bw", []string{"-n", "100"}, `(?m)^ 65536 +100 `},
		{"ib_send_bw", []string{"-n", "100"}, `(?m)^ 65536 +100 `},
		{"ib_send_bw", []string{"-n", "100", "-e"}, `(?m)^ 65536 +100 `},
		{"ib_atomic_bw", []string{"-n", "100"}, `(?m)^ 8 +100 `},
		{"ib_write_lat", []string{"-n", "20"}, `(?m)^ 2 +20 `},
		{"ib_send_lat", []string{"-n", "20"}, `(?m)^ 2 +20 `},
		{"ib_read_lat", []string{"-n", "20"}, `(?m)^ 2 +20 `},
		{"ibv_rc_pingpong", []string{"-g", "0", "-n", "100"}, `100 iters in`},
		{"ibv_rc_pingpong", []string{"-g", "0", "-n", "100", "-e", "-c"}, `100 iters in`},
		{"ibv_rc_pingpong", []string{"-g", "0", "-n", "100", "-N"}, `100 iters in`},
	} {
		t.Run(tt.name+strings.Join(tt.args, ""), func(t *testing.T) {
			program, err := exec.LookPath(tt.name)
			if err != nil {
				t.Skip("needs Debian's perftest (apt-get install perftest ibverbs-utils)")
			}
			port := freePort(t)
			args := append([]string{"-p", fmt.Sprint(port)}, tt.args...)
			server := underRun(t, program, args...)
			var log bytes.Buffer
			server.Stdout, server.Stderr = &log, &log
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			waitListening(t, port)
			r := finish(t, underRun(t, program, append(args, "127.0.0.1")...))
			if r.status != 0 || !regexp.MustCompile(tt.want).MatchString(r.stdout) {
				t.Errorf("client: status %d\n%s%s", r.status, r.stdout, r.stderr)
				_ = server.Process.Kill()
			}
			if err := server.Wait(); err != nil && !t.Failed() {
				t.Errorf("server: %v\n%s", err, log.String())
			}
		})
	}
	t.Run("ibv_devinfo", func(t *testing.T) {
		program, err := exec.LookPath("ibv_devinfo")
		if err != nil {
			t.Skip("needs Debian's ibverbs-utils (apt-get install perftest ibverbs-utils)")
		}
		r := finish(t, underRun(t, program, "-v"))
		for _, want := range []string{"hca_id:\tsoft0", "PORT_ACTIVE (4)", "Ethernet", "RoCE v2", "board_id:\t\t\tCULVERT"} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("no %q in\n%s", want, r.stdout)
			}
		}
		if r.status != 0 || r.stderr != "" {
			t.Errorf("status %d, %s", r.status, r.stderr)
		}
	})
}

// TestPerftestAgainstCulvert runs perftest at one end and culvert rdma bench at the other,
// in both roles.
func TestPerftestAgainstCulvert(t *testing.T) {
	libraries(t)
	for _, what := range []string{"write_bw", "read_bw", "send_bw", "read_lat", "send_lat"} {
		op, kind, _ := strings.Cut(what, "_")
		program, err := exec.LookPath("ib_" + what)
		if err != nil {
			t.Skip("needs Debian's perftest (apt-get install perftest ibverbs-utils)")
		}
		theirs := func(port int, more ...string) *exec.Cmd {
			return underRun(t, program, append([]string{"-n", "100", "-p", fmt.Sprint(port)}, more...)...)
		}
		ours := func(port int, more ...string) *exec.Cmd {
			cmd := exec.Command(filepath.Join(root(t), "bin", "culvert"), append([]string{"rdma", "bench", "--provider", "soft", "--op", op, fmt.Sprintf("--latency=%t", kind == "lat"), "-n", "100", "-p", fmt.Sprint(port)}, more...)...)
			cmd.Env = softEnv()
			return cmd
		}
		for name, ends := range map[string][2]func(int, ...string) *exec.Cmd{"serves": {ours, theirs}, "asks": {theirs, ours}} {
			t.Run(what+"/"+name, func(t *testing.T) {
				port := freePort(t)
				server := ends[0](port)
				var log bytes.Buffer
				server.Stdout, server.Stderr = &log, &log
				if err := server.Start(); err != nil {
					t.Fatal(err)
				}
				waitListening(t, port)
				r := finish(t, ends[1](port, "127.0.0.1"))
				row := regexp.MustCompile(`(?m)^ (2|65536) +100 .*$`)
				if r.status != 0 {
					_ = server.Process.Kill()
				}
				err := server.Wait()
				// Of messages, each end prints what it has seen; of latencies, only the client.
				got, want := row.FindString(log.String()), row.FindString(r.stdout)
				if kind == "lat" {
					got = want
				}
				if r.status != 0 || err != nil || got == "" || want == "" || op != "send" && got != want {
					t.Errorf("client: status %d\n%s%s\nserver: %v\n%s", r.status, r.stdout, r.stderr, err, log.String())
				}
			})
		}
	}
}

// underRun runs a program as a user does.
func underRun(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(root(t), "bin", "culvert"), append([]string{"run", "--", program}, args...)...)
	cmd.Env = append(softEnv(), "CULVERT_LIB="+filepath.Join(root(t), "lib"))
	return cmd
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// waitListening waits until a server listens. A connection would be taken for the
// client's, so it reads the kernel's table.
func waitListening(t *testing.T, port int) {
	t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, port))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if text, err := os.ReadFile(table); err == nil && line.Match(text) {
				return
			}
		}
	}
	t.Fatalf("nothing listens on port %d", port)
}
