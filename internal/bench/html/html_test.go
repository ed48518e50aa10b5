package html

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/culvert-io/culvert/internal/bench"
)

// The page has every figure, loads nothing from elsewhere, and a hostile file name
// stays text.
func TestWrite(t *testing.T) {
	about := About{File: `</script><img src=x onerror="alert(1)">`, GPU: "gpu:0 NVIDIA H200", Machine: "software", Kernel: "6.12", Version: "1.0", Command: "culvert bench --x '</p>'", Time: time.Unix(0, 0).UTC(), Drawing: "└─ gpu:0 <img>"}
	results := []*bench.Result{{Engine: "culvert", Part: bench.Part{GBps: 42.125}, Workload: bench.Workload{Pattern: bench.SeqRead, Block: 4096, Threads: 1}, Heat: &bench.HeatMap{Column: 128, Rows: []float64{1, 1.25}, Calls: [][]uint32{{3}, {}}}}}
	var out strings.Builder
	if err := Write(&out, about, results); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	for _, bad := range []string{"<img", "</p>'", "http://", "https://", "ZgotmplZ"} {
		if text := strings.ReplaceAll(page, "http://www.w3.org/", ""); strings.Contains(text, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	m := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	if m == nil {
		t.Fatal("no data")
	}
	var data struct {
		About   About
		Results []map[string]any
	}
	if err := json.Unmarshal([]byte(m[1]), &data); err != nil {
		t.Fatal(err)
	}
	if data.About.File != about.File || len(data.Results) != 1 || data.Results[0]["gb_per_second"] != 42.125 {
		t.Errorf("%+v", data)
	}
	if heat, err := json.Marshal(data.Results[0]["heat"]); err != nil || string(heat) != `{"calls":[[3],[]],"column_us":128,"rows_us":[1,1.25]}` {
		t.Errorf("the heat map is %s, %v", heat, err)
	}
	if !strings.Contains(page, `<pre class="scroll">└─ gpu:0 &lt;img&gt;</pre>`) {
		t.Error("the page lacks the drawing of the machine")
	}
	if !strings.Contains(page, "these figures say nothing about hardware") {
		t.Error("the page does not say that the machine is software")
	}
}
