package gpu

import (
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
)

func TestFramesAreGivenOutOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const blocks = 13 // not a power of two
		f := newFrames(blocks*blockFrames, rapid.Bool().Draw(t, "scatter"), rapid.Uint64().Draw(t, "seed"))
		used := map[uint64]bool{}
		var taken [][]uint64
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := blockFrames * rapid.Uint64Range(1, 6).Draw(t, "blocks")
				got := f.take(n)
				if (got == nil) != (uint64(len(used))+n > blocks*blockFrames) {
					t.Fatalf("take(%d) = %v with %d frames in use", n, got, len(used))
				}
				for _, x := range got {
					if used[x] || x >= blocks*blockFrames {
						t.Fatalf("frame %d was given out before or does not exist", x)
					}
					used[x] = true
				}
				if got != nil {
					taken = append(taken, got)
				}
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing taken")
				}
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				f.give(taken[i])
				for _, x := range taken[i] {
					delete(used, x)
				}
				taken = slices.Delete(taken, i, i+1)
			},
			"": func(t *rapid.T) {
				if f.available() != blocks*blockFrames-uint64(len(used)) {
					t.Fatalf("%d frames available, %d in use", f.available(), len(used))
				}
			},
		})
	})
}

// TestConditionsMatchTheirDefinition compares with the text of CUDA's header,
// done in wide arithmetic.
func TestConditionsMatchTheirDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word, value := rapid.Uint64().Draw(t, "word"), rapid.Uint64().Draw(t, "value")
		if rapid.Bool().Draw(t, "near") {
			word = value + uint64(rapid.Int64Range(-3, 3).Draw(t, "distance"))
		}
		width := rapid.SampledFrom([]int{4, 8}).Draw(t, "width")
		mask := ^uint64(0)
		if width == 4 {
			mask >>= 32
		}
		word, value = word&mask, value&mask
		diff := (word - value) & mask
		for c, want := range map[gpu.Cond]bool{
			gpu.CondGEQ: bits.Len64(diff) < 8*width, // the sign bit of the difference is clear
			gpu.CondEQ:  word == value,
			gpu.CondAND: word&value != 0,
			gpu.CondNOR: ^(word|value)&mask != 0,
		} {
			if got := meets(word, value, width, c); got != want {
				t.Fatalf("condition %d of %#x and %#x (%d bytes) is %t", c, word, value, width, got)
			}
		}
	})
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]mapping{
		"7f2c8a000000-7f2c8a021000 rw-p 00000000 00:00 0 ":                            {start: 0x7f2c8a000000, end: 0x7f2c8a021000, read: true, write: true},
		"00400000-0048f000 r-xp 00000000 08:01 131      /usr/bin/with blank":          {start: 0x400000, end: 0x48f000, read: true, major: 8, path: "/usr/bin/with blank"},
		"7f00-7f01 rw-s 00001000 fe:00 9 /dev/shm/x (deleted)":                        {start: 0x7f00, end: 0x7f01, read: true, write: true, shared: true, major: 0xfe, path: "/dev/shm/x (deleted)"},
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]": {start: 0xffffffffff600000, end: 0xffffffffff601000, path: "[vsyscall]"},
	} {
		if got, err := parseMapping(line); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "x", "1-2 rw-p 0 00", "1-2 rw 0 00:00 0", "12 rw-p 0 00:00 0", "g-2 rw-p 0 00:00 0", "1-g rw-p 0 00:00 0", "1-2 rw-p 0 g:00 0"} {
		if m, err := parseMapping(line); err == nil {
			t.Errorf("%q is %+v", line, m)
		}
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add("7f2c8a000000-7f2c8a021000 rw-p 00000000 08:01 131 /a path with blanks")
	f.Fuzz(func(t *testing.T, line string) {
		m, err := parseMapping(line)
		if err == nil && m.path != "" && !strings.HasSuffix(line, m.path) {
			t.Errorf("path %q of %q", m.path, line)
		}
	})
}

// Peer memory is taken as a whole or refused with the reason.
func TestPeerIsRefusedWhereItMakesNoSense(t *testing.T) {
	for name, cfg := range map[string]Config{
		"two GPUs":    {Models: []Model{H200(), H200()}, Peer: "0000:03:00.0"},
		"heap":        {Backing: Heap, Peer: "0000:03:00.0"},
		"no device":   {Peer: "ffff:ff:1f.7"},
		"not a place": {Peer: "../../../etc"},
	} {
		if d, err := New(cfg); err == nil {
			d.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	d, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, _, err := d.gpus[0].AcquirePeer(0, 1); !errors.Is(err, gpu.ErrNotSupported) {
		t.Errorf("peer memory of a GPU that has none: %v", err)
	}
}

// Where addresses are limited the window is smaller, but never so small that memory has
// no address.
func TestWindowOfFewAddresses(t *testing.T) {
	const memory = 8 << 30
	limit := 0
	limited := func(n int) ([]byte, error) {
		if n > limit {
			return nil, unix.ENOMEM
		}
		return reserve(n)
	}
	for _, c := range []struct {
		limit int
		want  uint64
	}{{1 << 40, minWindow}, {100 << 30, 64 << 30}, {memory + blockSize, memory}, {memory, 0}} {
		limit = c.limit
		w, err := reserveWindow(memory, limited)
		switch {
		case c.want == 0:
			if !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "ulimit -v") {
				t.Errorf("limit %d: %v", c.limit, err)
			}
		case err != nil || w.size != c.want:
			t.Errorf("limit %d: %v, %v", c.limit, w, err)
		default:
			if err := w.close(); err != nil {
				t.Error(err)
			}
		}
	}
}
