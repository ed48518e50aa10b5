package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/culvert-io/culvert/internal/human"
)

// A kindOfRun is what two measurements must have in common to be compared.
type kindOfRun struct {
	Pattern  Pattern `json:"pattern"`
	Block    int64   `json:"block"`
	Threads  int     `json:"threads"`
	Batch    int     `json:"batch"`
	Register bool    `json:"registered"`
	Cold     bool    `json:"cold"`
	Reads    int     `json:"read_percent"`
	Limit    int64   `json:"limit_bytes_per_second"`
	Region   int64   `json:"region"`
	Job      string  `json:"job"`
	Files    int     `json:"files"`
	Memory   string  `json:"memory"`
	Engine   string  `json:"engine"`
	Soft     bool    `json:"software_machine"`
}

func (k *kindOfRun) String() string {
	s := fmt.Sprintf("%s %s bs=%s threads=%d batch=%d", k.Pattern, k.Engine, human.ShortSize(k.Block), k.Threads, k.Batch)
	if k.Reads > 0 {
		s += fmt.Sprintf(" mix=%d", k.Reads)
	}
	if k.Limit > 0 {
		s += " limit=" + human.Rate(float64(k.Limit))
	}
	if k.Files > 0 {
		s += fmt.Sprintf(" files=%d", k.Files)
	}
	if k.Job != "" {
		s = k.Job + ": " + s
	}
	if k.Cold {
		s += " cold"
	}
	if !k.Register {
		s += " unregistered"
	}
	if k.Memory != "device" {
		s += " " + k.Memory
	}
	return s
}

// Rates are saved measurements: gigabytes per second of every round, by kind.
type Rates map[kindOfRun][]float64

// ReadRates reads what culvert bench --json has printed, one object per line.
func ReadRates(r io.Reader) (Rates, error) {
	rates := Rates{}
	dec := json.NewDecoder(r)
	for n := 1; ; n++ {
		var line struct {
			kindOfRun
			GBps *float64 `json:"gb_per_second"`
		}
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			break
		}
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); other || err == nil && (line.GBps == nil || line.Engine == "") {
			err = errors.New("not a measurement")
		}
		if err != nil {
			return nil, fmt.Errorf("object %d: %w (fix: save it with culvert bench --json)", n, err)
		}
		rates[line.kindOfRun] = append(rates[line.kindOfRun], *line.GBps)
	}
	if len(rates) == 0 {
		return nil, errors.New("no measurements (fix: save some with culvert bench --json)")
	}
	return rates, nil
}

// Compare prints how the rates of results differ from those of earlier ones, and
// whether chance explains it.
func Compare(w io.Writer, old Rates, results []*Result) error {
	now := Rates{}
	var order []kindOfRun
	for _, r := range results {
		k := kindOfRun{r.Pattern, r.Block, r.Threads, r.Batch, r.Register, r.Cold, r.ReadPercent, r.Limit, r.Region, r.Job, r.Files, r.Memory, r.Engine, r.Soft}
		if now[k] == nil {
			order = append(order, k)
		}
		now[k] = append(now[k], r.GBps)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n%10s %10s %8s  %s\n", "OLD GB/s", "NEW GB/s", "CHANGE", "RUN")
	few := false
	for _, k := range order {
		a := old[k]
		if a == nil {
			fmt.Fprintf(&b, "%10s %10.4g %8s  %s: the saved file has no such run\n", "-", median(now[k]), "-", &k)
			continue
		}
		c := compare(a, now[k])
		few = few || c.few
		fmt.Fprintf(&b, "%10.4g %10.4g %8s  %s: %s\n", c.old, c.new, c.change(), &k, c.verdict())
	}
	if few {
		fmt.Fprintln(&b, "Too few rounds to exclude chance: 4 and 4 can, so use --repeat 4 or more for both.")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// significant is the probability below which chance is not believed.
const significant = 0.05

// maxRounds limits what is compared: counting all orders takes a second for 100 rounds.
const maxRounds = 100

// A comparison is of medians.
type comparison struct {
	old, new float64
	rounds   [2]int
	p        float64
	few      bool // no result could exclude chance
}

func compare(a, b []float64) comparison {
	a, b = a[:min(len(a), maxRounds)], b[:min(len(b), maxRounds)]
	c := comparison{old: median(a), new: median(b), rounds: [2]int{len(a), len(b)}, p: rankSum(a, b)}
	c.few = bestP(len(a), len(b)) >= significant
	return c
}

// bestP is the smallest p-value that so many rounds can have: two of all orders.
func bestP(n, m int) float64 {
	orders := 1.0
	for i := 1; i <= n; i++ {
		orders *= float64(m+i) / float64(i)
	}
	return min(1, 2/orders)
}

func (c *comparison) change() string {
	if c.old <= 0 {
		return "-"
	}
	return fmt.Sprintf("%+.1f%%", 100*(c.new/c.old-1))
}

// verdict states what was tested and the result.
func (c *comparison) verdict() string {
	word := "no significant difference"
	switch {
	case c.few:
		word = "not decided"
	case c.p < significant && c.new > c.old:
		word = "faster"
	case c.p < significant && c.new < c.old:
		word = "slower"
	}
	return fmt.Sprintf("%s (p=%.3f, Mann-Whitney, %d and %d rounds)", word, c.p, c.rounds[0], c.rounds[1])
}
