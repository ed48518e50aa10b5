package registration

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/culvert-io/culvert/internal/tune"
	"github.com/culvert-io/culvert/rdma"
	"github.com/culvert-io/culvert/rdma/tcp"
	"github.com/culvert-io/culvert/soft"
	"github.com/culvert-io/culvert/softtest"
)

// Every method that works has a rate, the others a reason and a fix, and what was measured
// is what transfers know later.
func TestMeasure(t *testing.T) {
	m := softtest.New(t, soft.Config{Without: []string{"nvidia-peermem"}})
	dev, err := softtest.Of(t, m).RDMA().Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	g, err := m.GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	results, err := Measure(t.Context(), dev, g)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		works := r.Method != rdma.PeerMemory
		if works != (r.Rate > 0) || works != (r.Refused == "") || works != (r.Register > 0) {
			t.Errorf("%+v", r)
		}
	}
	if why := results[0].Refused; len(results) != 4 || !strings.Contains(why, "modprobe nvidia-peermem") {
		t.Errorf("%d results; peer memory is refused because of %q", len(results), why)
	}
	cache, root := tune.NewCache(""), fstest.MapFS{}
	if o := Known(cache, dev, g.Info(), root); o.Methods != nil || o.Evidence != "" {
		t.Errorf("known before it was measured: %+v", o)
	}
	if err := Store(cache, dev, g.Info(), root, results); err != nil {
		t.Fatal(err)
	}
	o := Known(cache, dev, g.Info(), root)
	if o.Methods[2] != rdma.PeerMemory || slices.Contains(o.Methods, rdma.Staging) || !strings.Contains(o.Evidence, "peer memory does not work, dma-buf/pcie ") {
		t.Errorf("known: %+v", o)
	}
}

// A provider without a way to GPU memory has staging only.
func TestMeasureTCP(t *testing.T) {
	p, err := tcp.New(tcp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := p.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	g, err := softtest.New(t, soft.Config{}).GPU.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	results, err := Measure(t.Context(), dev, g)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if (r.Rate > 0) != (r.Method == rdma.Staging) {
			t.Errorf("%+v", r)
		}
	}
}

// The faster method is tried first; those that are about equal keep the built-in order.
func TestOrder(t *testing.T) {
	pm, pcie, buf := rdma.PeerMemory, rdma.ViaPCIeDMABuf, rdma.ViaDMABuf
	for name, c := range map[string]struct {
		rates [3]float64
		want  []rdma.Method
	}{
		"about equal":       {[3]float64{100, 103, 104}, []rdma.Method{pm, pcie, buf}},
		"the last is best":  {[3]float64{100, 103, 200}, []rdma.Method{buf, pm, pcie}},
		"reversed":          {[3]float64{100, 200, 400}, []rdma.Method{buf, pcie, pm}},
		"first does not":    {[3]float64{0, 200, 201}, []rdma.Method{pcie, buf, pm}},
		"second does not":   {[3]float64{100, 0, 100}, []rdma.Method{pm, buf, pcie}},
		"none does":         {[3]float64{}, []rdma.Method{pm, pcie, buf}},
		"staging is faster": {[3]float64{100, 99, 98}, []rdma.Method{pm, pcie, buf}},
	} {
		var results []Result
		for i, m := range rdma.DirectMethods() {
			results = append(results, Result{Method: m, Rate: c.rates[i]})
		}
		results = append(results, Result{Method: rdma.Staging, Rate: 1000})
		if got := Order(results).Methods; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
