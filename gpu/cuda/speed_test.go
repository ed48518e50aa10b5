//go:build linux && (amd64 || arm64) && !nodl

package cuda_test

import (
	"bufio"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/gpu"
)

// The C sources are part of the test binary, which may run far from them.
//
//go:embed testdata/*.c
var sources embed.FS

// compiled remembers what compileC made, by source and flags.
var compiled = map[string][]byte{}

// compileC compiles one of the C sources. Every call gives a file of its own,
// which is a library of its own to the loader.
func compileC(t testing.TB, source, binary string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), binary)
	key := fmt.Sprint(source, flags)
	if image, ok := compiled[key]; ok {
		if err := os.WriteFile(out, image, 0o700); err != nil {
			t.Fatal(err)
		}
		return out
	}
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skipf("needs gcc to compile %s", source)
	}
	text, err := sources.ReadFile("testdata/" + source)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), source)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O1", "-o", out, file}, flags...)
	if msg, err := exec.Command(cc, append(args, "-lpthread", "-ldl")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	if compiled[key], err = os.ReadFile(out); err != nil {
		t.Fatal(err)
	}
	return out
}

var speedFile = flag.String("copyspeed.record", "", "write the result of TestCopySpeed to this `file`")

// A copyCase is a kind of copy. Limit is the most that Go's time may be of
// C's; 0 where the two do not promise the same.
type copyCase struct {
	Name   string  `json:"name"`
	C      string  `json:"c"` // how C does it
	Pinned bool    `json:"pinned"`
	Bytes  int     `json:"bytes"`
	Count  int     `json:"count"`
	Limit  float64 `json:"limit,omitempty"`

	GoNS  float64 `json:"go_ns"` // per copy, median of the rounds
	CNS   float64 `json:"c_ns"`
	Ratio float64 `json:"ratio"` // Go's time over C's
}

func copyCases() []*copyCase {
	const large, small = 1 << 30, 4 << 10
	return []*copyCase{
		{Name: "1 GiB to the GPU", C: "h2d", Pinned: true, Bytes: large, Count: 3, Limit: 1 / 0.98},
		{Name: "1 GiB from the GPU", C: "d2h", Pinned: true, Bytes: large, Count: 3, Limit: 1 / 0.98},
		{Name: "4 KiB from the GPU", C: "d2h", Pinned: true, Bytes: small, Count: 2000, Limit: 1.10},
		{Name: "4 KiB from the GPU", C: "d2h", Bytes: small, Count: 2000, Limit: 1.10},
		{Name: "4 KiB to the GPU, arrived", C: "h2d+sync", Pinned: true, Bytes: small, Count: 2000, Limit: 1.10},
		{Name: "4 KiB to the GPU, arrived", C: "h2d+sync", Bytes: small, Count: 2000, Limit: 1.10},
		{Name: "4 KiB to the GPU, where C does not wait", C: "h2d", Pinned: true, Bytes: small, Count: 2000},
		{Name: "4 KiB to the GPU, where C does not wait", C: "h2d", Bytes: small, Count: 2000},
	}
}

// A cProgram is testdata/copybench.c, running.
type cProgram struct {
	in  io.Writer
	out *bufio.Scanner
}

func startC(t *testing.T, library string) *cProgram {
	t.Helper()
	cmd := exec.Command(compileC(t, "copybench.c", "copybench"), library)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("copybench: %v", err)
		}
	})
	return &cProgram{in, bufio.NewScanner(out)}
}

func (p *cProgram) measure(t *testing.T, c *copyCase) time.Duration {
	t.Helper()
	kind := "pageable"
	if c.Pinned {
		kind = "pinned"
	}
	fmt.Fprintln(p.in, c.C, kind, c.Bytes, c.Count)
	if !p.out.Scan() {
		t.Fatalf("copybench ended: %v", p.out.Err())
	}
	ns, err := strconv.ParseInt(p.out.Text(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ns)
}

func measureGo(t *testing.T, d gpu.Device, mem gpu.Addr, host []byte, c *copyCase) time.Duration {
	t.Helper()
	host = host[:c.Bytes]
	start := time.Now()
	for range c.Count {
		var err error
		if c.C == "d2h" {
			err = d.CopyOut(host, mem)
		} else {
			err = d.CopyIn(mem, host)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(start)
}

// TestCopySpeed compares copies with the same ones from C, in turns.
func TestCopySpeed(t *testing.T) {
	const room = 1 << 30
	drv := hardware(t)
	d := openHardware(t)
	mem, err := d.Alloc(gpu.KindDevice, room, 0)
	if err != nil {
		t.Fatal(err)
	}
	pin, err := d.Alloc(gpu.KindHost, room, gpu.HostPortable)
	if err != nil {
		t.Fatal(err)
	}
	pinned, pageable := gpu.HostBytes(pin, room), make([]byte, room)
	for i := 0; i < room; i += 4096 { // all pages must be there
		pinned[i], pageable[i] = 1, 1
	}
	_, library, _ := strings.Cut(strings.TrimSuffix(drv.Name(), ")"), "(")
	program := startC(t, library)

	cases := copyCases()
	for _, c := range cases {
		host := pageable
		if c.Pinned {
			host = pinned
		}
		var inGo, inC []float64
		for round := range 8 {
			g, k := measureGo(t, d, mem, host, c), program.measure(t, c)
			if round > 0 { // the first warms up
				inGo, inC = append(inGo, float64(g)/float64(c.Count)), append(inC, float64(k)/float64(c.Count))
			}
		}
		c.GoNS, c.CNS = median(inGo), median(inC)
		c.Ratio = c.GoNS / c.CNS
		if c.Limit > 0 && c.Ratio > c.Limit {
			t.Errorf("%s (pinned %v): Go takes %.0f ns, C %.0f: %.3f of it, at most %.3f is allowed", c.Name, c.Pinned, c.GoNS, c.CNS, c.Ratio, c.Limit)
		}
	}
	report, err := json.MarshalIndent(struct {
		Driver string      `json:"driver"`
		Device string      `json:"device"`
		Copies []*copyCase `json:"copies"`
	}{drv.Name(), d.Info().Name, cases}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", report)
	if *speedFile != "" {
		if err := os.WriteFile(*speedFile, append(report, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
