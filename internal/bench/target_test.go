package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-io/culvert/gpu"
	"github.com/culvert-io/culvert/internal/object"
)

// Several files take turns by blocks, whatever the number of callers; every engine moves the
// right bytes, and none reads beyond the smallest.
func TestSeveralFiles(t *testing.T) {
	const block = 64 << 10
	drv := openBench(t, 1).drv
	dir := t.TempDir()
	var names []string
	for i, blocks := range []int{8, 3, 5} {
		var data []byte
		for k := range blocks {
			data = append(data, bytes.Repeat([]byte{byte(16*i + k)}, block)...)
		}
		names = append(names, filepath.Join(dir, string(rune('a'+i))))
		if err := os.WriteFile(names[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(drv, 0, names, os.O_RDWR, true)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.NoCeiling = true
	for _, p := range []Pattern{SeqRead, RandRead, SeqWrite} { // writes make all blocks alike
		for _, m := range []Method{{}, {Async: true}, {Peer: PeerPread}, {Peer: PeerMemory}} {
			for _, threads := range []int{1, 2, 5} {
				w := Workload{Pattern: p, Block: block, Threads: threads, Batch: 2, Kind: gpu.KindDevice, Register: true, Verify: p != SeqWrite || m.Peer != PeerMemory, Bytes: 36 * block}
				res, err := b.Measure(t.Context(), w, m, "")
				if err != nil {
					t.Fatalf("%+v %s: %v", m, p, err)
				}
				if res.Moved != 36*block || res.Files != 3 || !strings.Contains(tableTitle(res), ", 3 files, ") || !strings.Contains(res.String(), " files=3") {
					t.Errorf("%+v %s moved %d bytes: %s", m, p, res.Moved, res)
				}
			}
		}
	}
	if err := b.CheckBlock(4 * block); err == nil || !strings.HasPrefix(err.Error(), names[1]+": ") {
		t.Errorf("a block that is larger than one of the files: %v", err)
	}
	if _, err := b.Measure(t.Context(), Workload{Pattern: SeqRead, Block: block, Threads: 1, Batch: 1, Region: 4 * block}, Method{}, ""); err == nil {
		t.Error("a region that is larger than the smallest file")
	}
}

// A sequence of blocks loads the files alike, and goes through each of them in order.
func TestStripe(t *testing.T) {
	var got []int64
	for off := int64(0); off < 60; off += 10 {
		file, at := stripe(3, off+1, 10)
		got = append(got, int64(file)*100+at)
	}
	if want := []int64{1, 101, 201, 11, 111, 211}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if file, at := stripe(1, -1, 10); file != 0 || at != -1 {
		t.Errorf("one file: %d, %d", file, at)
	}
	s := striped{[]*target{{name: "a"}, {name: "b"}}, 10}
	if got := s.where(30); got != "offset 10 of b" {
		t.Error(got)
	}
}

// All files are made cold, also those behind one of which the page cache says nothing.
func TestColdBehindUnknown(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(name, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if err := f.warm(); err != nil {
		t.Fatal(err)
	}
	b := &Bench{targets: []*target{{object: new(object.File)}, f}}
	share, err := b.setTemperature(true)
	if err != nil {
		t.Skip(err) // as on tmpfs
	}
	if n, err := f.st.Resident(0, f.size); n != 0 || err != nil || share != -1 {
		t.Errorf("%d bytes are cached, of all %.2f; %v", n, share, err)
	}
}
