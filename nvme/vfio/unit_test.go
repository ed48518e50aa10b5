package vfio

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/culvert-io/culvert/gpu"
	abi "github.com/culvert-io/culvert/internal/abi/vfio"
)

// TestAddressesDoNotOverlap takes and gives addresses at random.
func TestAddressesDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranges := [][]abi.IOVARange{
			nil,
			{{Start: 0, End: 0xfedfffff}, {Start: 0xfef00000, End: 1<<39 - 1}},
			{{Start: 0, End: 1<<20 - 1}},
			{{Start: firstIOVA + 100, End: firstIOVA + 1<<16}, {Start: 1<<64 - 1<<16, End: 1<<64 - 1}},
		}
		s := newIOVAs(ranges[rapid.IntRange(0, len(ranges)-1).Draw(t, "ranges")])
		var mine []abi.IOVARange
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(mine) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(mine)-1).Draw(t, "which")
				s.give(mine[i].Start)
				mine = slices.Delete(mine, i, i+1)
				continue
			}
			n := pageSize * rapid.Uint64Range(1, 20).Draw(t, "pages")
			a, ok := s.take(n)
			if !ok {
				continue
			}
			got := abi.IOVARange{Start: a, End: a + n - 1}
			if a%pageSize != 0 || !slices.ContainsFunc(s.ranges, func(r abi.IOVARange) bool { return r.Start <= a && got.End <= r.End && got.End > a }) {
				t.Fatalf("%#x to %#x is not within %#x", a, got.End, s.ranges)
			}
			for _, m := range mine {
				if got.Start <= m.End && m.Start <= got.End {
					t.Fatalf("%#x to %#x is taken", a, got.End)
				}
			}
			mine = append(mine, got)
		}
		for _, m := range mine {
			s.give(m.Start)
		}
		if len(s.taken) != 0 {
			t.Fatalf("%#x are left", s.taken)
		}
	})
}

// TestAddressesReturn uses more addresses than there are, one after the other.
func TestAddressesReturn(t *testing.T) {
	s := newIOVAs([]abi.IOVARange{{Start: 0, End: 1<<20 - 1}})
	for range 1000 {
		a, ok := s.take(1 << 19)
		if !ok {
			t.Fatal("no addresses left")
		}
		s.give(a)
	}
	if _, ok := s.take(2 << 20); ok {
		t.Error("more addresses than there are")
	}
}

func FuzzParseRanges(f *testing.F) {
	good := make([]byte, 80)
	*(*abi.IOMMUInfo)(unsafe.Pointer(&good[0])) = abi.IOMMUInfo{Argsz: 80, Flags: 3, CapOffset: 24}
	*(*abi.IOVACap)(unsafe.Pointer(&good[24])) = abi.IOVACap{Header: abi.CapHeader{ID: 1}, NrIovas: 2}
	*(*abi.IOVARange)(unsafe.Pointer(&good[40])) = abi.IOVARange{Start: 0, End: 0xfedfffff}
	*(*abi.IOVARange)(unsafe.Pointer(&good[56])) = abi.IOVARange{Start: 0xfef00000, End: 1<<39 - 1}
	if got := parseRanges(good); !slices.Equal(got, []abi.IOVARange{{Start: 0, End: 0xfedfffff}, {Start: 0xfef00000, End: 1<<39 - 1}}) {
		f.Errorf("%#x", got)
	}
	loop := slices.Clone(good)
	*(*abi.IOVACap)(unsafe.Pointer(&loop[24])) = abi.IOVACap{Header: abi.CapHeader{ID: 3, Next: 24}}
	many := slices.Clone(good)
	*(*abi.IOVACap)(unsafe.Pointer(&many[24])) = abi.IOVACap{Header: abi.CapHeader{ID: 1}, NrIovas: 1000}
	f.Add(good)
	f.Add(loop)
	f.Add(many)
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(parseRanges(b)); n*16 > len(b) {
			t.Errorf("%d ranges in %d bytes", n, len(b))
		}
	})
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	for pci, want := range map[string]string{
		"nonsense":              "invalid PCI address",
		"../../../etc":          "invalid PCI address",
		"ffff:ff:1f.7":          "no such file",
		"0000:00:00.0/../other": "invalid PCI address",
	} {
		if _, err := Open(pci, Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pci, err, want)
		}
	}
	if err := Bind("nonsense"); err == nil {
		t.Error("nonsense was bound")
	}
	if d := Driver("nonsense"); d != "" {
		t.Errorf("nonsense has the driver %q", d)
	}
}

func TestGPUNeedsAView(t *testing.T) {
	tr := &Transport{pci: "0000:01:00.0"}
	if _, _, _, err := tr.MapGPU(gpu.Span{Len: 64 << 10}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	released := false
	tr.cfg.View = func(gpu.Span) ([]byte, func() error, error) {
		return make([]byte, 100), func() error { released = true; return nil }, nil
	}
	if _, _, _, err := tr.MapGPU(gpu.Span{Len: 64 << 10}); err == nil || !released {
		t.Errorf("a view that is no memory for DMA: %v, released: %v", err, released)
	}
}
