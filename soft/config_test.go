package soft

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A liar gets the seed, wherever it is in the text.
func TestParseConfigLiar(t *testing.T) {
	c, err := ParseConfig("lie=drop:100,seed=7")
	if err != nil || c.Liar.Seed != 7 || c.Liar.OneIn != 100 {
		t.Errorf("%+v, %v", c.Liar, err)
	}
}

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Config
		err  string
	}{
		{text: "", want: Config{Zero: true}},
		{text: "gpus=2,model=small-bar,memory=1G,scatter,heap,seed=7,peer=0000:03:00.0", want: Config{GPUs: 2, Model: "small-bar", Memory: 1 << 30, Scatter: true, Heap: true, Seed: 7, Peer: "0000:03:00.0", Zero: true}},
		{text: "memory=64K", want: Config{Memory: 64 << 10, Zero: true}},
		{text: "memory=4096", want: Config{Memory: 4096, Zero: true}},
		{text: "scatter=false", want: Config{Zero: true}},
		{text: "poison=1", want: Config{}},
		{text: "callback", want: Config{Callback: true, Zero: true}},
		{text: "poison=perhaps", err: "poison"},
		{text: "memory=", err: "memory"},
		{text: "memory=G", err: "memory"},
		{text: "memory=1X", err: "memory=1X: invalid size"},
		{text: "memory=99999999999G", err: "too large"},
		{text: "gpus=0", err: "must be 1 to 16"},
		{text: "gpus=two", err: "gpus=two: must be 1 to 16"},
		{text: "heap=maybe", err: "heap=maybe: must be 0 or 1"},
		{text: "seed=-1", err: "seed=-1: must be a number of 64 bits"},
		{text: "model=h100", err: "models: h200, small-bar, pageable"},
		{text: "lie=flatter", err: "lies: any, drop, misdirect"},
		{text: "drive=nvme-rdma", want: Config{Drive: "nvme-rdma", Zero: true}},
		{text: "drive=floppy", err: "drives: nvme, nvme-rdma"},
		{text: "without=gdrdrv+nvidia-fs", want: Config{Zero: true, Without: []string{"gdrdrv", "nvidia-fs"}}},
		{text: "without=gdrdrv,without=gdrcopy", err: "unknown kernel module"},
		{text: "colour=blue", err: "unknown key"},
	} {
		got, err := ParseConfig(tc.text)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("ParseConfig(%q): error %v, want one with %q", tc.text, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("ParseConfig(%q): %v", tc.text, err)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("ParseConfig(%q): %s", tc.text, d)
		}
	}
}
