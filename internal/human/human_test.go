package human

import (
	"slices"
	"testing"
)

func TestSizesAndRates(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 19: "2.5 MiB", 1 << 40: "1.0 TiB", 1 << 52: "4096.0 TiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
	for bps, want := range map[float64]string{5.48e10: "54.8GB/s", 1.5e6: "1.5MB/s", 12: "12B/s"} {
		if got := Rate(bps); got != want {
			t.Errorf("Rate(%g) = %q, want %q", bps, got, want)
		}
	}
}

// What is rounded to the next unit has no exponent.
func TestDigits(t *testing.T) {
	for bps, want := range map[float64]string{0: "0 B/s", 999.6: "1000 B/s", 9.994e8: "999 MB/s", 9.996e8: "1000 MB/s", 1.2345e13: "12300 GB/s", 0.25: "0.25 B/s"} {
		if got := Speed(bps); got != want {
			t.Errorf("Speed(%g) = %q, want %q", bps, got, want)
		}
	}
}

// A hostile name stays on its line and does not control the terminal.
func TestName(t *testing.T) {
	for name, want := range map[string]string{
		"model.norm.weight": "model.norm.weight", "with space \"日本\"": "with space \"日本\"", "": `""`,
		"two\nlines": `"two\nlines"`, "\x1b[2J": `"\x1b[2J"`, "tab\t": `"tab\t"`, "bad\xff": `"bad\xff"`, "\u202eabc": `"\u202eabc"`,
	} {
		if got := Name(name); got != want {
			t.Errorf("Name(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"open a: no such file": "open a: no such file", "two\nlines\tü \"q\"": "two\nlines\tü \"q\"",
		"\x1b[2Jx\a": `\x1b[2Jx\a`, "bad\xff\u202e": `bad\xff\u202e`, "": "",
	} {
		if got := Text(text); got != want {
			t.Errorf("Text(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "4096": 4096, "64M": 64 << 20, "2G": 2 << 30, "1T": 1 << 40, "1K": 1024, "64k": 64 << 10, "1m": 1 << 20, "2g": 2 << 30, "4KiB": 4096, "16MiB": 16 << 20} {
		if got, err := ParseSize(in); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "M", "-1", "1MB", "4iB", "iB", "KiB", "1Ki", "4ſ", "ɐɐɐk", "K1", "1.5G", "9999999T", "99999999999999999999"} {
		if n, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d", in, n)
		}
	}
}

func TestParseRate(t *testing.T) {
	for in, want := range map[string]int64{
		"": 0, "1": 1, "500k": 500_000, "500K": 500_000, "100MB": 100e6, "100M": 100_000_000, "2.5G": 2_500_000_000, "1.5GB/s": 1_500_000_000, "12B/s": 12, "1000T": 1e15,
	} {
		if got, err := ParseRate(in); got != want || err != nil {
			t.Errorf("ParseRate(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"0", "M", "-1", "0.5", "1MiB", "B/s", "1e9", "inf", "NaN", "0x10", "1..5G", "1001T", "99999999999999999999"} {
		if n, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %d", in, n)
		}
	}
}

// ParseSize reads what ShortSize prints.
func TestShortSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1000: "1000", 4096: "4K", 4097: "4097", 3 << 20: "3M", 5 << 30: "5G"} {
		if got := ShortSize(n); got != want {
			t.Errorf("ShortSize(%d) = %q, want %q", n, got, want)
		}
		if got, err := ParseSize(want); got != n || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v", want, got, err)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for in, want := range map[string][]int64{
		"4K": {4096}, "4K,1M": {4096, 1 << 20}, "4K:1M:x16": {4 << 10, 64 << 10, 1 << 20}, "1:7:2": {1, 2, 4},
	} {
		if got, err := ParseSizes(in); !slices.Equal(got, want) || err != nil {
			t.Errorf("ParseSizes(%q) = %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "4K,", "0", "4K:1M", "4K:1M:x1", "1M:4K:x2", "0:4K:x2"} {
		if list, err := ParseSizes(in); err == nil {
			t.Errorf("ParseSizes(%q) = %d", in, list)
		}
	}
}
