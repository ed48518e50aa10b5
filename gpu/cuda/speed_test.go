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
// C's; 0 where the two do not guarantee the same.
type copyCase struct {
	Name   string  `json:"name"`
	C      string  `json:"c"` // how C does it
	Pinned bool    `json:"pinned"`
	Bytes  int     `json:"bytes"`
	Rounds int     `json:"rounds"`
	Warmup int     `json:"warmup"` // copies before those that count, in each round
	Count  int     `json:"count"`
	Limit  float64 `json:"limit,omitempty"`

	GoNS      float64    `json:"go_ns"` // per copy, median of the rounds
	CNS       float64    `json:"c_ns"`
	Ratio     float64    `json:"ratio"`     // Go's time over C's in the same round, median of the rounds
	Quartiles [2]float64 `json:"quartiles"` // of the same
}

func copyCases() []*copyCase {
	large := func(name, c string) *copyCase {
		return &copyCase{Name: name, C: c, Pinned: true, Bytes: 1 << 30, Rounds: 9, Warmup: 1, Count: 3, Limit: 1 / 0.98}
	}
	small := func(name, c string, pinned bool, limit float64) *copyCase {
		return &copyCase{Name: name, C: c, Pinned: pinned, Bytes: 4 << 10, Rounds: 41, Warmup: 100, Count: 200, Limit: limit}
	}
	return []*copyCase{
		large("1 GiB to the GPU", "h2d"),
		large("1 GiB from the GPU", "d2h"),
		small("4 KiB from the GPU", "d2h", true, 1.10),
		small("4 KiB from the GPU", "d2h", false, 1.10),
		small("4 KiB to the GPU, arrived", "h2d+sync", true, 1.10),
		small("4 KiB to the GPU, arrived", "h2d+sync", false, 1.10),
		small("4 KiB to the GPU, where C does not wait", "h2d", true, 0),
		small("4 KiB to the GPU, where C does not wait", "h2d", false, 0),
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
	fmt.Fprintln(p.in, c.C, kind, c.Bytes, c.Warmup, c.Count)
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
	var start time.Time
	for i := range c.Warmup + c.Count {
		if i == c.Warmup {
			start = time.Now()
		}
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

// compare lets Go and C copy in turns, each first as often as the other. What
// counts is the ratio inside a round, because rounds differ by more than the
// programs do: a processor wakes up, the GPU changes from one process to the
// other.
func (c *copyCase) compare(inGo, inC func() time.Duration) {
	var g, k, ratios []float64
	for round := range c.Rounds {
		var a, b time.Duration
		if round%2 == 0 {
			a, b = inGo(), inC()
		} else {
			b, a = inC(), inGo()
		}
		g, k = append(g, float64(a)/float64(c.Count)), append(k, float64(b)/float64(c.Count))
		ratios = append(ratios, float64(a)/float64(b))
	}
	c.GoNS, c.CNS, c.Ratio = quantile(g, 0.5), quantile(k, 0.5), quantile(ratios, 0.5)
	c.Quartiles = [2]float64{quantile(ratios, 0.25), quantile(ratios, 0.75)}
}

func quantile(v []float64, q float64) float64 {
	slices.Sort(v)
	return v[int(q*float64(len(v)))]
}

// TestCopySpeed compares copies with the same ones from C.
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
		c.compare(
			func() time.Duration { return measureGo(t, d, mem, host, c) },
			func() time.Duration { return program.measure(t, c) },
		)
		if c.Limit > 0 && c.Ratio > c.Limit {
			t.Errorf("%s (pinned %v): Go takes %.3f of C's time (quartiles %.3f; medians %.0f and %.0f ns), at most %.3f is allowed",
				c.Name, c.Pinned, c.Ratio, c.Quartiles, c.GoNS, c.CNS, c.Limit)
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

// The first round is slow for both programs, and one in five is for one of them.
func TestCompareLooksAtRounds(t *testing.T) {
	calls := 0
	turn := func(every int, base time.Duration) func() time.Duration {
		n := 0
		return func() time.Duration {
			n++
			calls++
			if n%every == 0 {
				return 3 * base
			}
			if n == 1 {
				return 10 * base
			}
			return base * time.Duration(1+n%3)
		}
	}
	c := &copyCase{Rounds: 41, Count: 10}
	c.compare(turn(5, 1050), turn(1000, 1000))
	if calls != 82 || c.Ratio != 1.05 {
		t.Errorf("ratio %v after %d calls, want 1.05 after 82", c.Ratio, calls)
	}
}
