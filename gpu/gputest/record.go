package gputest

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/culvert-io/culvert/gpu"
)

var recordFile = flag.String("gputest.record", "", "write the outcomes of gputest.Run to this `file`")

// A Record has the results of a driver.
type Record struct {
	Driver  string   `json:"driver"`
	Version int      `json:"version"`
	Device  gpu.Info `json:"device"`
	GPUs    int      `json:"gpus"`
	Suite   string   `json:"suite"` // hash of the suite's source
	// Outcomes are codes and results by "case/step".
	Outcomes map[string]string `json:"outcomes"`
	// Skipped are cases that could not run, with the reason.
	Skipped map[string]string `json:"skipped,omitempty"`
	// Facts are sizes, times and alignments. Replay ignores them.
	Facts map[string]string `json:"facts,omitempty"`
}

//go:embed *.go
var source embed.FS

// suiteHash identifies the suite that made a record. Tests of the suite and the
// reader of records do not count, since they do not change records.
func suiteHash() string {
	h := sha256.New()
	files, err := source.ReadDir(".")
	if err != nil {
		return err.Error()
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "_test.go") || f.Name() == "replay.go" {
			continue
		}
		text, err := source.ReadFile(f.Name())
		if err != nil {
			return err.Error()
		}
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// A recorder fills a Record. Cases may use goroutines.
type recorder struct {
	mu  sync.Mutex
	rec Record
}

func newRecorder(t *testing.T, d gpu.Driver) *recorder {
	infos, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(infos) == 0 {
		t.Fatal("driver has no GPU")
	}
	return &recorder{rec: Record{
		Driver: d.Name(), Version: d.Version(), Device: infos[0], GPUs: len(infos), Suite: suiteHash(),
		Outcomes: map[string]string{}, Skipped: map[string]string{}, Facts: map[string]string{},
	}}
}

func (r *recorder) put(m map[string]string, key, v string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m[key] = v
}

func (r *recorder) outcome(key, v string) { r.put(r.rec.Outcomes, key, v) }
func (r *recorder) skip(key, why string)  { r.put(r.rec.Skipped, key, why) }
func (r *recorder) fact(key, v string)    { r.put(r.rec.Facts, key, v) }

func (r *recorder) save(t *testing.T, file string) {
	if file == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.MarshalIndent(r.rec, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
