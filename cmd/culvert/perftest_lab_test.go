package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/lab/inside"
)

// TestLabPerftest runs Debian's perftest and culvert rdma bench against each other, in
// both roles, on the kernel's software RoCE: both ends print the same row. What each
// measures with itself is reported and not judged, because emulated speeds say little.
func TestLabPerftest(t *testing.T) {
	inside.Wanted(t, "CULVERT_WANT_PERFTEST")
	const ip, iterations, port = "10.0.0.1", "200", 18515
	if err := inside.SetAddress("eth0", netip.MustParsePrefix(ip+"/24")); err != nil {
		t.Fatal(err)
	}
	if err := inside.AddRXE("rxe0", "eth0"); err != nil {
		t.Fatal(err)
	}
	next := port
	for _, op := range []string{"write", "read"} {
		ours := func(port int, more ...string) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), "culvert", append([]string{
				"rdma", "bench", "--provider", "ibverbs", "--op", op, "-n", iterations, "-p", strconv.Itoa(port), "-a", ip,
			}, more...)...)
			cmd.Env = append(os.Environ(), "CULVERT_MACHINE=soft")
			return cmd
		}
		theirs := func(port int, more ...string) *exec.Cmd {
			return exec.CommandContext(t.Context(), "ib_"+op+"_bw", append([]string{"-F", "-n", iterations, "-p", strconv.Itoa(port)}, more...)...)
		}
		for _, tt := range []struct {
			name           string
			server, client func(int, ...string) *exec.Cmd
		}{
			{"perftest asks culvert", ours, theirs},
			{"culvert asks perftest", theirs, ours},
			{"perftest asks perftest", theirs, theirs},
			{"culvert asks culvert", ours, ours},
		} {
			next++
			t.Run(op+"/"+strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
				row := bothEnds(t, next, tt.server(next), tt.client(next, ip))
				inside.Report("%-5s 64 KiB, %-22s %s MiB/s", op, tt.name, row[2])
			})
		}
	}
}

// bothEnds runs a server and its client, whose rows must be the same, and returns the row:
// iterations, peak and average.
func bothEnds(t *testing.T, port int, server, client *exec.Cmd) []string {
	t.Helper()
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	if !listens(port, ended) {
		_ = server.Process.Kill()
		t.Fatalf("the server does not listen on port %d: %v\n%s", port, <-ended, log.String())
	}
	out, err := client.CombinedOutput()
	if err != nil {
		_ = server.Process.Kill()
	}
	serr := <-ended
	row := regexp.MustCompile(`(?m)^ 65536 +(\d+) +([\d.]+) +([\d.]+)\s.*$`)
	got, want := row.FindStringSubmatch(string(out)), row.FindStringSubmatch(log.String())
	if err != nil || serr != nil || got == nil || want == nil || got[0] != want[0] {
		t.Fatalf("client: %v\n%s\nserver: %v\n%s", err, out, serr, log.String())
	}
	return got[1:]
}

// listens waits until a server listens, or has ended. A connection would be taken for the
// client's, so it reads the kernel's table.
func listens(port int, ended chan error) bool {
	line := regexp.MustCompile(fmt.Sprintf(`:%04X [0-9A-F]+:0000 0A `, port))
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end) && len(ended) == 0; time.Sleep(10 * time.Millisecond) {
		for _, table := range []string{"tcp", "tcp6"} {
			if text, err := os.ReadFile(filepath.Join("/proc/net", table)); err == nil && line.Match(text) {
				return true
			}
		}
	}
	return false
}
